// Files that are open for reading: at most a fixed number at a time, so that a dataset of many thousand files
// needs few descriptors.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

namespace gangway::data {

// A file as the dataset found it. A file whose size is different when it is opened again is refused.
struct FileFacts {
  std::string path;
  uint64_t bytes = 0;
  int64_t changed_s = 0, changed_ns = 0;  // when its contents changed last
};
// IO: the file is missing or not a regular file.
FileFacts file_facts(const std::string& path);
bool is_file(const std::string& path);
// Returns the last part of a path.
std::string base_name(const std::string& path);

class OpenFiles {
 public:
  OpenFiles() = default;
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // Reads exactly the bytes [offset, offset + bytes), by pread: a mapping of a file that is cut short would
  // end the process. IO: the file cannot be opened or read, or ends earlier; the text names file and byte.
  void read(const FileFacts& file, uint64_t offset, void* out, size_t bytes);
  // Reads the whole file, which has at most `limit` bytes. CORRUPT: it has more.
  std::string read_all(const FileFacts& file, uint64_t limit);

 private:
  struct Open {
    std::string path;
    int descriptor;
  };
  int descriptor_of(const FileFacts& file);

  std::list<Open> open_;  // the one used last comes first
};

}  // namespace gangway::data
