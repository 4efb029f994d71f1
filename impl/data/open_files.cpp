#include "data/open_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace gangway::data {
namespace {

constexpr size_t kMostOpen = 64;

}  // namespace

FileFacts file_facts(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail_file("data: opening", path, errno);
  if (!S_ISREG(status.st_mode)) fail(Code::io, "data: ", path, " is not a regular file");
  return {path, static_cast<uint64_t>(status.st_size), status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

OpenFiles::~OpenFiles() {
  for (const Open& file : open_) close(file.descriptor);
}

int OpenFiles::descriptor_of(const FileFacts& file) {
  const auto known =
      std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.path == file.path; });
  if (known != open_.end()) {
    open_.splice(open_.begin(), open_, known);
    return open_.front().descriptor;
  }
  if (open_.size() == kMostOpen) {
    close(open_.back().descriptor);
    open_.pop_back();
  }
  open_.push_front({file.path, -1});
  // Opening a fifo that took the file's place must not block.
  const int descriptor = open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int why = errno;
  struct stat status {};
  const bool as_before = descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                         static_cast<uint64_t>(status.st_size) == file.bytes;
  if (as_before) return open_.front().descriptor = descriptor;
  open_.pop_front();
  if (descriptor < 0) fail_file("data: opening", file.path, why);
  close(descriptor);
  fail(Code::io, "data: ", file.path, " had ", file.bytes, " bytes and now has ", status.st_size,
       "; a dataset's files must not change while it is in use");
}

void OpenFiles::read(const FileFacts& file, uint64_t offset, void* out, size_t bytes) {
  const int descriptor = descriptor_of(file);
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const size_t piece = std::min<size_t>(bytes, size_t{1} << 30);
    const ssize_t got = pread(descriptor, to, piece, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(text("data: reading at byte ", offset, " of"), file.path, errno);
    if (got == 0)
      fail(Code::io, "data: ", file.path, " was truncated while it is in use: byte ", offset,
           " is behind its end now, and it had ", file.bytes, " bytes");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

std::string OpenFiles::read_all(const FileFacts& file, uint64_t limit) {
  if (file.bytes > limit)
    fail(Code::corrupt, "data: ", file.path, " has ", file.bytes, " bytes, over the limit of ", limit);
  std::string content(static_cast<size_t>(file.bytes), '\0');
  read(file, 0, content.data(), content.size());
  return content;
}

}  // namespace gangway::data
