// Files to which a run appends one line for each row of metrics. A run that is continued continues its files:
// the lines of steps that will come again are cut.
//
// Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

  // Appends a row. Before the first row it cuts the lines of this step and later ones. IO.
  void append(const MetricsRow& row);
  // Removes the lines of steps above `step`. Other lines keep their bytes. The file is replaced in one
  // rename.
  void cut_after(int64_t step);
  // Returns step, loss and validation loss of every line.
  struct Point {
    int64_t step;
    double loss, validation_loss;
  };
  std::vector<Point> points() const;

 private:
  void open();
  void begin();  // writes the head of an empty file
  void close() noexcept;
  void write(const std::string& text);

  std::string path_;
  Format format_;
  int file_ = -1;
  bool appended_ = false;
};

}  // namespace gangway
