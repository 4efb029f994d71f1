// A file that is open for reading, and a stamp that identifies the file and the version of its contents.
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
  // Returns size and time, as "1234 bytes, changed at 1700000000.000000000".
  std::string text() const;
};

class InputFile {
 public:
  // IO: the file is missing, or it is not a regular file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  const FileStamp& opened() const { return opened_; }  // the stamp from when it was opened
  // Returns whether the open file still has that stamp.
  bool is_unchanged() const;
  // Returns whether path() still names the open file.
  bool is_at_its_path() const;
  // Reads exactly the bytes [offset, offset + bytes). IO: the file ends earlier.
  void read(uint64_t offset, uint64_t bytes, void* out) const;
  // Reads the whole file. CORRUPT: it has more than `limit` bytes.
  std::string read_all(uint64_t limit) const;

 private:
  std::string path_;
  int file_ = -1;
  FileStamp opened_;
};

}  // namespace gangway
