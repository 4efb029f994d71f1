// How many sockets this process holds.
#pragma once

#include <filesystem>
#include <system_error>

namespace gangway::test {

inline int count_sockets() {
  int count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(one, gone).string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

}  // namespace gangway::test
