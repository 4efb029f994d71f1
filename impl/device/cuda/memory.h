// Memory of one CUDA device: blocks that are freed wait for the streams that may still use them.
// Thread rule: any thread.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "device/cuda/calls.h"

namespace gangway::cuda {

class Memory {
 public:
  explicit Memory(int device);
  ~Memory();  // of a device whose streams are gone
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* allocate(size_t bytes);
  void free(void* data) noexcept;

  // Streams whose work may use blocks that are freed from now on.
  void add(cudaStream_t stream);
  void remove(cudaStream_t stream) noexcept;

 private:
  struct Freed {
    void* data;
    std::vector<cudaEvent_t> events;
  };

  void collect(bool wait) noexcept;
  cudaEvent_t take_event();
  bool passed(Freed& freed, bool wait) noexcept;

  const int device_;
  std::mutex mutex_;
  cudaStream_t pool_ = nullptr;  // holds nothing but allocations
  std::vector<cudaStream_t> streams_;
  std::deque<Freed> freed_;
  std::vector<cudaEvent_t> events_;  // to use again
};

}  // namespace gangway::cuda
