#include "base/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace gangway {

int open_new_file(const std::string& what, const std::string& path, int flags) {
  // Without O_NONBLOCK the opening of a fifo waits for a reader, which may never come.
  constexpr int kAlways = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  const int file = open(path.c_str(), kAlways | flags, 0666);
  struct stat status {};
  const bool is_fifo = file >= 0 ? fstat(file, &status) == 0 && S_ISFIFO(status.st_mode) : errno == ENXIO;
  if (is_fifo) {
    if (file >= 0) close(file);
    fail_file(what + " (a fifo or socket cannot be continued; name a file)", path, ENXIO);
  }
  if (file >= 0) return file;
  if (errno == ELOOP) fail_file(what + " (a symbolic link is not followed)", path, ELOOP);
  fail_file(what, path, errno);
}

void write_new_file(const std::string& what, const std::string& path, std::string_view text) {
  const int file = open_new_file(what, path, O_TRUNC);
  int failed = 0;
  while (!text.empty() && failed == 0) {
    const ssize_t wrote = write(file, text.data(), text.size());
    if (wrote >= 0)
      text.remove_prefix(static_cast<size_t>(wrote));
    else if (errno != EINTR)
      failed = errno;
  }
  if (close(file) != 0 && failed == 0) failed = errno;
  if (failed != 0) fail_file(what, path, failed);
}

}  // namespace gangway
