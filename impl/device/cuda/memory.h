// Memory of one CUDA device, and pinned memory of the host beside it: blocks that are freed wait for the streams that may
// still use them. Plain ones go back to the device's pool then. Pinned ones are kept for the next request of their size class:
// to give one back to the driver stops all streams, so that happens only when the host has no more memory, and at the end.
// Where there is no more memory a request waits for blocks that streams still use, and hears of a lost peer meanwhile.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "device/cuda/calls.h"
#include "device/cuda/watches.h"

namespace gangway::cuda {

class Memory {
 public:
  Memory(int device, Watches& watches);
  ~Memory();  // of a device whose streams are gone
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* allocate(size_t bytes);
  void* allocate_pinned(size_t bytes);
  void free(void* data) noexcept;
  void free_pinned(void* data, size_t bytes) noexcept;

  // Streams whose work may use blocks that are freed from now on.
  void add(cudaStream_t stream);
  void remove(cudaStream_t stream) noexcept;

  // While this is held no block is taken or freed, so nothing asks a stream how far it is: a stream that captures must not
  // be asked.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }

 private:
  struct Freed {
    void* data;
    size_t pinned_bytes;  // 0: plain memory
    std::vector<cudaEvent_t> events;
  };

  void* take_pinned(size_t bytes);
  void free_later(void* data, size_t pinned_bytes) noexcept;
  void give_back(const Freed& freed) noexcept;
  template <typename Take>
  void wait_for_freed(Take&& take);
  void collect(bool wait) noexcept;
  cudaEvent_t take_event();
  bool passed(Freed& freed, bool wait) noexcept;

  const int device_;
  Watches& watches_;
  std::mutex mutex_;
  cudaStream_t pool_ = nullptr;  // holds nothing but allocations
  std::vector<cudaStream_t> streams_;
  std::deque<Freed> freed_;
  uint64_t given_back_ = 0;              // blocks, ever
  std::multimap<size_t, void*> pinned_;  // to use again, by size class
  std::vector<cudaEvent_t> events_;      // to use again
};

}  // namespace gangway::cuda
