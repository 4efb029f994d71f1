// The memory of this host: how much there is, and where tensors' blocks in it come from.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

namespace gangway {

constexpr uint64_t kUnknownBytes = std::numeric_limits<uint64_t>::max();

uint64_t total_memory();      // the smaller of the machine's and the tightest cgroup's
uint64_t available_memory();  // the smaller of MemAvailable and what the cgroups leave
uint64_t used_memory();       // of this process; pages that others share count by their share

// Where blocks come from. Both functions are called from any thread.
struct HostSource {
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;  // null: none left
  void (*free)(void* user, void* data, size_t bytes) = nullptr;
  void* user = nullptr;
  std::shared_ptr<void> keep;  // goes with the last block
};

// The source of blocks to come; null: the C library again. A block goes back where it came from.
void set_host_source(std::shared_ptr<const HostSource> source);
std::shared_ptr<const HostSource> host_source();  // null: the C library

}  // namespace gangway
