// A file that is being read, and what tells it from another one and from itself after a change.
//
// Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <string>

namespace gangway {

struct FileStamp {
  uint64_t device = 0, inode = 0;
  uint64_t bytes = 0;
  int64_t seconds = 0, nanoseconds = 0;  // of the last change to its contents
  bool operator==(const FileStamp&) const = default;
  // "1234 bytes, changed at 1700000000.000000000"
  std::string text() const;
};

class InputFile {
 public:
  // IO: it is missing, or no regular file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  const FileStamp& opened() const { return opened_; }  // as it was when it was opened
  // Is the open file as it was when it was opened, and is it still the one of its name?
  bool is_unchanged() const;
  bool is_at_its_path() const;
  // Reads exactly [offset, offset + bytes). IO: it ends before.
  void read(uint64_t offset, uint64_t bytes, void* out) const;
  // All of it. CORRUPT: it is over `limit` bytes.
  std::string read_all(uint64_t limit) const;

 private:
  std::string path_;
  int file_ = -1;
  FileStamp opened_;
};

}  // namespace gangway
