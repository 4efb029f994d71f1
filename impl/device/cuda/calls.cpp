#include "device/cuda/calls.h"

namespace gangway::cuda {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // otherwise the next launch would report it again
  fail(error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::internal, "cuda: ", what, ": ",
       cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

size_t shared_memory_of_block() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return static_cast<size_t>(bytes);
}

OnDevice::OnDevice(int device) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ == device) return;
  check(cudaSetDevice(device), "cudaSetDevice");
  changed_ = true;
}

OnDevice::OnDevice(int device, std::nothrow_t) noexcept {
  changed_ =
      cudaGetDevice(&before_) == cudaSuccess && before_ != device && cudaSetDevice(device) == cudaSuccess;
  cudaGetLastError();  // otherwise the next launch would report a failure
}

OnDevice::~OnDevice() {
  if (changed_) cudaSetDevice(before_);
}

}  // namespace gangway::cuda
