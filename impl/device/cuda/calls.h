// Turns errors of CUDA's runtime into exceptions, and sets the current device for a scope.
//
// Devices, streams, events and memory belong to device/cuda. Kernels (ops/cuda) and NCCL (gang/nccl) do not.
//
// Thread rule: a value belongs to one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>

#include "base/error.h"

namespace gangway::cuda {

// Throws OUT_OF_MEMORY or INTERNAL, with CUDA's name and text of the error. `what` is the call or the kernel.
void check(cudaError_t error, const char* what);

// Returns the bytes of shared memory that a block may have on the current device: 99 KiB on sm_86, sm_89 and
// sm_120, 163 on sm_80, 227 on sm_90 and sm_100.
size_t shared_memory_of_block();

// Makes a device the thread's current one for the lifetime of this object, and restores the old one after it.
class OnDevice {
 public:
  explicit OnDevice(int device);
  OnDevice(int device, std::nothrow_t) noexcept;  // for destructors
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace gangway::cuda
