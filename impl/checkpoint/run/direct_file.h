// A file that a save writes beside training. Large pieces go past the page cache (O_DIRECT): the disk reads
// them from the caller's memory, which takes a tenth of the processor's time of a copy to the cache, on cores
// that train meanwhile. Small pieces, the ends of large ones, and all of it where the file system has no
// direct writes, go through the page cache.
//
// Thread rule: one thread per object.
#pragma once

#include "checkpoint/output_file.h"

namespace gangway {

// What file systems ask of direct writes, of the place in the file and in memory alike. Those that ask for
// more refuse the write, and it goes through the page cache.
constexpr uint64_t kDirectAlignment = 4096;
// Below it, a write of its own to the disk would cost more than it spares.
constexpr uint64_t kLeastDirectBytes = 64 << 10;

class DirectFile {
 public:
  void open(const std::string& path);  // to write to; it exists
  bool is_open() const { return file_.descriptor() >= 0; }
  // Direct if `data` and `offset` are equal modulo kDirectAlignment. IO.
  void write(uint64_t offset, const void* data, size_t bytes);
  void sync() const { file_.sync(); }  // of both ways
  void close();

 private:
  bool write_directly(uint64_t offset, const void* data, size_t bytes);

  std::string path_;
  OutputFile file_, direct_;
  bool may_be_direct_ = true;
};

}  // namespace gangway
