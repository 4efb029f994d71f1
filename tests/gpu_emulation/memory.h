// Memory of the software GPU's devices. Each device has a range of addresses, whose pages are protected.
// While a kernel or a copy runs (Access), the pages that it touches are accessible. Every block ends at the
// end of a page, and the next page is protected. Its address is not reused for a long time. This detects
// accesses beyond a block and to freed blocks, and host code that touches device memory. New memory is filled
// with NaN, at least at both ends.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpu_emulation {

constexpr int kMostDevices = 16;

// Returns a block of a device's memory, or null if `capacity` bytes do not suffice.
void* allocate_device(int device, size_t bytes, uint64_t capacity);
// Returns false if `data` is not the start of a block.
bool free_device(void* data);
uint64_t device_bytes(int device);  // in use
int64_t device_blocks(int device);

// Memory of the host that kernels can access.
void* allocate_pinned(size_t bytes);
bool free_pinned(void* data);
int64_t pinned_blocks();

// Describes where an address lies.
enum class Place { host, pinned, device };
struct Where {
  Place place = Place::host;
  int device = -1;
  size_t rest = 0;    // bytes from here to the end of the block; 0: not in a block
  size_t offset = 0;  // from the start of the block to here
};
Where where(const void* address);
// Returns whether the address lies in a device's range. Takes no lock.
bool is_device_address(const void* address);
// Returns whether the address is mapped memory that kernels cannot access.
bool is_plain_host_memory(uint64_t address);

// Lets the calling thread access device memory for the lifetime of this object.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

// Describes the thread's last access that ended a kernel. Signal handlers may call it, because it allocates
// nothing.
std::array<char, 160> describe_access();

}  // namespace gpu_emulation
