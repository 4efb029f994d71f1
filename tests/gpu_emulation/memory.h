// Memory of the software GPU's devices: one range of addresses for each device, whose pages nobody can touch but while a
// kernel or a copy runs (Access), and then only those that it touches. Every block ends where a page does, with a closed
// page behind it; its address is not used again for long. So found are: a read or write beyond a block, of a block that
// was freed, and host code that touches device memory. New memory is full of NaN, at least its ends.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpu_emulation {

constexpr int kMostDevices = 16;

// A block of a device's memory. Null: none left of `capacity` bytes.
void* allocate_device(int device, size_t bytes, uint64_t capacity);
// False: this is no start of a block.
bool free_device(void* data);
uint64_t device_bytes(int device);  // in use
int64_t device_blocks(int device);

// Memory of the host that kernels reach.
void* allocate_pinned(size_t bytes);
bool free_pinned(void* data);
int64_t pinned_blocks();

// Where an address lies.
enum class Place { host, pinned, device };
struct Where {
  Place place = Place::host;
  int device = -1;
  size_t rest = 0;  // bytes from here to the end of the block; 0: in none
};
Where where(const void* address);
// Whether it is an address of a device's range; takes no lock.
bool is_device_address(const void* address);
// Whether it is mapped memory that kernels do not reach.
bool is_plain_host_memory(uint64_t address);

// While one lives, the calling thread reaches device memory.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

// What the last access of this thread was that ended a kernel. A handler of signals may ask: it takes no memory.
std::array<char, 160> describe_access();

}  // namespace gpu_emulation
