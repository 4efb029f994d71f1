#include "tools/train/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace gangway::train {

bool write_text_file(const std::string& path, const std::string& text) noexcept {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file < 0) return false;
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t wrote = write(file, rest.data(), rest.size());
    if (wrote >= 0)
      rest.remove_prefix(static_cast<size_t>(wrote));
    else if (errno != EINTR)
      break;
  }
  return close(file) == 0 && rest.empty();
}

}  // namespace gangway::train
