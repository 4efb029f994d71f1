// Calls of CUDA's runtime as C++: an error is thrown, handles have an owner, the caller's current device stays his.
//
// Belongs to device/cuda: devices, streams, events, memory. Does not: kernels (ops/cuda), NCCL (gang/nccl).
//
// Thread rule: values of one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <new>

#include "base/error.h"

namespace gangway::cuda {

// `what`: the call, or the kernel. OUT_OF_MEMORY, or INTERNAL with CUDA's name and words.
void check(cudaError_t error, const char* what);

// A device is the thread's current one as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  OnDevice(int device, std::nothrow_t) noexcept;  // for a destructor, which must not throw
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace gangway::cuda
