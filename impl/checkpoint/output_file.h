// A file or folder that a save has open. Failures are IO with the path, also when the process reaches its
// limit of file sizes (no SIGXFSZ is delivered).
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
  // Makes the file `bytes` large. Where the file system can, it sets that space aside, so that a full disk is
  // found here.
  void reserve(uint64_t bytes) const;
  void write(uint64_t offset, const void* data, size_t bytes) const;
  void sync() const;
  void close();  // reports an error; the destructor closes without reporting one
  int descriptor() const { return file_; }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace gangway
