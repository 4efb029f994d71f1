#include "gang/host/limits.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "gang/host/shared.h"

namespace gangway::host {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

uint64_t number_in(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : kUnknown;  // "max" is no number: no limit
}

// Pages of files that a group is charged for and that the kernel takes back when memory is wanted.
uint64_t file_cache(const std::string& folder, bool unified) {
  uint64_t bytes = 0, value = 0;
  std::ifstream in(folder + "memory.stat");
  const std::string prefix = unified ? "" : "total_";
  for (std::string word; in >> word >> value;)
    if (word == prefix + "inactive_file" || word == prefix + "active_file") bytes += value;
  return bytes;
}

// What the cgroups of this process leave, the tightest of the whole path.
uint64_t cgroup_left() {
  uint64_t least = kUnknown;
  const auto look = [&](const std::string& folder, bool unified, const char* limit_file, const char* used_file) {
    const uint64_t limit = number_in(folder + limit_file);
    const uint64_t charged = number_in(folder + used_file);
    if (limit == kUnknown || charged == kUnknown) return;
    const uint64_t used = charged - std::min(charged, file_cache(folder, unified));
    least = std::min(least, limit > used ? limit - used : 0);
  };
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") continue;
    for (;;) {
      std::string tail = path;
      if (tail != "/") tail.push_back('/');
      if (unified) {
        look("/sys/fs/cgroup" + tail, true, "memory.max", "memory.current");
      } else {
        look("/sys/fs/cgroup/memory" + tail, false, "memory.limit_in_bytes", "memory.usage_in_bytes");
      }
      if (path.empty() || path == "/") break;
      path = path.substr(0, path.rfind('/'));
      if (path.empty()) path.assign(1, '/');
    }
  }
  return least;
}

}  // namespace

uint64_t default_reserve() {
#if defined(__SANITIZE_THREAD__)
  return uint64_t{16} << 30;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return uint64_t{16} << 30;
#endif
#endif
  const auto ram =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(8 * ram, uint64_t{256} << 30);
}

uint64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  uint64_t available = kUnknown;
  std::string word;
  while (in >> word) {
    if (word == "MemAvailable:") {
      in >> available;
      available *= 1024;
      break;
    }
  }
  return std::min(available, cgroup_left());
}

uint64_t default_limit() {
  const uint64_t available = available_memory();
  return available == kUnknown ? kUnknown : available / 5 * 4;
}

void touch(void* data, size_t bytes) {
  auto* const first = static_cast<unsigned char*>(data);
#ifdef MADV_POPULATE_WRITE
  if (bytes >= 4 * kPage && madvise(first, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (size_t i = 0; i < bytes; i += kPage)
    reinterpret_cast<std::atomic<unsigned char>*>(first + i)->fetch_or(0, std::memory_order_relaxed);
}

}  // namespace gangway::host
