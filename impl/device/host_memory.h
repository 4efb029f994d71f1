// The memory of this host: how much there is, and the hooks that allocate tensors' blocks in it.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

namespace gangway {

constexpr uint64_t kUnknownBytes = std::numeric_limits<uint64_t>::max();

// The smaller of the machine's memory and the tightest cgroup's limit.
uint64_t total_memory();
// The smaller of MemAvailable and what the cgroups have left.
uint64_t available_memory();
// The memory of this process. A page that several processes share counts in proportion.
uint64_t used_memory();

// Functions that allocate blocks of host memory. Both functions may be called from any thread.
struct HostMemoryHooks {
  // Returns null if no memory is left.
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;
  void (*free)(void* user, void* data, size_t bytes) = nullptr;
  void* user = nullptr;
  std::shared_ptr<void> keep;  // released with the last block
};

// Sets the hooks for later blocks. Null means the C library. Each block goes back to the hooks that it came
// from.
void set_host_memory_hooks(std::shared_ptr<const HostMemoryHooks> hooks);
std::shared_ptr<const HostMemoryHooks> host_memory_hooks();  // null means the C library

}  // namespace gangway
