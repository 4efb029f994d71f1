#include "base/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace gangway {

int open_new_file(const std::string& what, const std::string& path, int flags) {
  constexpr int kAlways = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW;
  const int file = open(path.c_str(), kAlways | flags, 0666);
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
