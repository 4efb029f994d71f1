#include "device/host_memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#include "base/cgroups.h"

namespace gangway {
namespace {

uint64_t number_in(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : kUnknownBytes;  // "max" is not a number and means no limit
}

// Returns the bytes of file pages that a cgroup is charged for and that the kernel reclaims when memory is
// short.
uint64_t file_cache(const std::string& folder, bool unified) {
  uint64_t bytes = 0, value = 0;
  std::ifstream in(folder + "memory.stat");
  const std::string prefix = unified ? "" : "total_";
  for (std::string word; in >> word >> value;)
    if (word == prefix + "inactive_file" || word == prefix + "active_file") bytes += value;
  return bytes;
}

// The tightest limit, and the least memory left, of the cgroups that this process is in, up to the root.
struct Cgroups {
  uint64_t limit = kUnknownBytes, left = kUnknownBytes;
};

Cgroups cgroups() {
  Cgroups least;
  for_each_cgroup("memory", [&](const std::string& folder, bool unified) {
    const uint64_t limit = number_in(folder + (unified ? "memory.max" : "memory.limit_in_bytes"));
    const uint64_t charged = number_in(folder + (unified ? "memory.current" : "memory.usage_in_bytes"));
    if (limit == kUnknownBytes || charged == kUnknownBytes) return;
    const uint64_t used = charged - std::min(charged, file_cache(folder, unified));
    least.limit = std::min(least.limit, limit);
    least.left = std::min(least.left, limit > used ? limit - used : 0);
  });
  return least;
}

// Reads a line such as "Name:  123 kB" and returns its value in bytes.
uint64_t kilobytes_in(const char* path, const char* name) {
  std::ifstream in(path);
  uint64_t value = 0;
  for (std::string word; in >> word;)
    if (word == name) return in >> value ? value * 1024 : kUnknownBytes;
  return kUnknownBytes;
}

// A process that never sets a source pays one load for each block, and takes no lock.
std::atomic<bool> source_was_set{false};
std::mutex source_mutex;
std::shared_ptr<const HostMemoryHooks>& source() {
  // Never destroyed: blocks may be made while static objects are destroyed.
  static auto* const current = new std::shared_ptr<const HostMemoryHooks>;
  return *current;
}

}  // namespace

uint64_t total_memory() { return std::min(kilobytes_in("/proc/meminfo", "MemTotal:"), cgroups().limit); }
uint64_t available_memory() {
  return std::min(kilobytes_in("/proc/meminfo", "MemAvailable:"), cgroups().left);
}
uint64_t used_memory() { return kilobytes_in("/proc/self/smaps_rollup", "Pss:"); }

void set_host_memory_hooks(std::shared_ptr<const HostMemoryHooks> next) {
  const std::lock_guard lock(source_mutex);
  source_was_set.store(true, std::memory_order_release);
  // The caller's `next` then holds the former source, which may be destroyed only after the lock is released.
  source().swap(next);
}

std::shared_ptr<const HostMemoryHooks> host_memory_hooks() {
  if (!source_was_set.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(source_mutex);
  return source();
}

}  // namespace gangway
