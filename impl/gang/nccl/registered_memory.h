// Memory of ncclMemAlloc, which communicators can register (registrations.h). All engines of a rank share it.
//
// Ranks end registrations together, so a block may be freed long before its memory can be. The memory goes
// back to the driver when no communicator has it registered, none is being aborted, and the device's streams
// have no work.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "device/device.h"

namespace gangway::nccl {

class RegisteredMemory : public std::enable_shared_from_this<RegisteredMemory> {
 public:
  // Blocks below `least` bytes get plain memory of the device, because NCCL gives memory in steps of
  // megabytes.
  RegisteredMemory(std::shared_ptr<Device> device, size_t least);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  size_t least() const { return least_; }
  std::shared_ptr<Allocator> allocator();
  // Returns the bytes of a block of the allocator, and 0 for any other memory.
  size_t bytes_of(const void* data) const;
  bool is_freed(const void* data) const;
  bool is_registered(const void* data) const;

  // Count the registrations of a block.
  void hold(const void* data);
  void drop(const void* data) noexcept;

  // Gives back what can be given back. `wait`: waits for aborts and for the device's work first.
  void reclaim(bool wait) noexcept;

 private:
  class Blocks;
  struct State {
    size_t bytes = 0;
    int registrations = 0;
    bool is_freed = false;
  };

  void* allocate(size_t bytes);
  void* take(size_t bytes);
  void free(void* data) noexcept;
  bool anything_freed() const;
  void wait_for_work() const noexcept;

  const std::shared_ptr<Device> device_;
  const size_t least_;
  mutable std::mutex mutex_;
  std::map<const void*, State> blocks_;
};

}  // namespace gangway::nccl
