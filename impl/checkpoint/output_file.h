// A file or folder of a checkpoint that is being written, by its descriptor. What fails is IO with the path; a limit on
// file sizes is such a failure, too, and no signal.
//
// Thread rule: one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace gangway {

class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const std::string& path, int flags) { open(path, flags); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void open(const std::string& path, int flags);
  void write(uint64_t offset, const void* data, size_t bytes) const;
  void sync() const;
  void close();  // the destructor drops what close says
  int descriptor() const { return file_; }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace gangway
