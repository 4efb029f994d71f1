// Files to which a run appends one line for each row of metrics. A run that is continued continues its files:
// the lines of steps that will come again are cut.
//
// Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "metrics/row.h"

namespace gangway {

class LogFile {
 public:
  enum class Format : uint8_t { json_lines, csv };
  // Opens the file for appending, and creates it if it is missing. Removes a last line that has no line
  // break, which a killed run left. IO, also if a
  // symbolic link lies in the file's place.
  LogFile(const std::string& path, Format format);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Appends a row. Lines of its step and later ones, which the file may have from a run that is continued,
  // are cut first. IO.
  void append(const MetricsRow& row);
  // Removes the lines of steps above `step`. Other lines keep their bytes. Steps ascend, so that the file is
  // read from its end, up to a line that stays.
  void cut_after(int64_t step);
  const std::string& path() const { return path_; }
  int64_t last_step() const;  // of the last line; -1: there is none
  void sync();                // so that the lines outlive a power cut. IO.
  // The step, loss and validation loss of a line.
  struct Point {
    int64_t step;
    double loss, validation_loss;
  };
  void for_each_point(const std::function<void(const Point&)>& use) const;  // reads the file

 private:
  void open();
  void begin();  // writes the head of an empty file
  void close() noexcept;
  void write(const std::string& text);

  std::string path_;
  Format format_;
  int file_ = -1;
  int64_t last_ = std::numeric_limits<int64_t>::max();  // no line has a later step
};

}  // namespace gangway
