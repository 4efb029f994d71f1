#include "checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace gangway {
namespace {

FileStamp stamp_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size), status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

}  // namespace

std::string FileStamp::text() const {
  char time[40];
  std::snprintf(time, sizeof time, "%lld.%09lld", static_cast<long long>(seconds),
                static_cast<long long>(nanoseconds));
  return gangway::text(bytes, " bytes, changed at ", time);
}

InputFile::InputFile(const std::string& path) : path_(path) {
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a fifo must not block
  if (file_ < 0) fail_file("load: opening", path, errno);
  struct stat status {};
  if (fstat(file_, &status) != 0) {
    const int why = errno;
    close(file_);
    fail_file("load: reading", path, why);
  }
  if (!S_ISREG(status.st_mode)) {
    close(file_);
    fail(Code::io, "load: ", path, " is not a regular file");
  }
  opened_ = stamp_of(status);
}

InputFile::~InputFile() { close(file_); }

bool InputFile::is_unchanged() const {
  struct stat status {};
  return fstat(file_, &status) == 0 && stamp_of(status) == opened_;
}

bool InputFile::is_at_its_path() const {
  struct stat status {};
  return stat(path_.c_str(), &status) == 0 && status.st_dev == opened_.device &&
         status.st_ino == opened_.inode;
}

void InputFile::read(uint64_t offset, uint64_t bytes, void* out) const {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(bytes, 1u << 30));
    const ssize_t got = pread(file_, to, piece, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file("load: reading", path_, errno);
    if (got == 0) fail(Code::io, "load: ", path_, " ends at byte ", offset, ", ", bytes, " bytes early");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

std::string InputFile::read_all(uint64_t limit) const {
  if (opened_.bytes > limit)
    fail(Code::corrupt, "load: ", path_, " has ", opened_.bytes, " bytes, over the limit of ", limit);
  std::string content(static_cast<size_t>(opened_.bytes), '\0');
  read(0, content.size(), content.data());
  return content;
}

}  // namespace gangway
