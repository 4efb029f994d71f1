// Memory of one CUDA device, and pinned memory of the host for it.
//
// A freed block waits for the streams that may still use it. Then device memory goes back to the device's
// pool. Pinned memory is kept for the next request of its size class, because returning it to the driver
// stops all streams. That happens only when the host has no more memory, and at the end.
//
// While a caller captures one of the streams, no stream and no event may be asked for its state. Blocks that
// are freed meanwhile wait in a list until the capture has ended, and none comes back.
//
// If there is no memory left, a request waits for blocks that streams still use. A lost peer ends this wait
// (watches.h).
//
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
  ~Memory();  // the device's streams must be destroyed before
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* allocate(size_t bytes);
  void* allocate_pinned(size_t bytes);
  void free(void* data) noexcept;
  void free_pinned(void* data, size_t bytes) noexcept;

  // Name the streams whose work may use blocks that are freed later.
  void add(cudaStream_t stream);
  void remove(cudaStream_t stream) noexcept;
  // Returns whether a caller captures one of the streams. Then no stream and no event may be asked for its
  // state.
  bool is_captured() noexcept;

  // The state of the streams that were added. While a caller captures one of them, none may be asked.
  enum class Work { done, running, captured };
  Work work() noexcept;
  // Returns to the driver what the pool keeps for later requests.
  void trim() noexcept;

  // Keeps other threads from allocating and freeing blocks. For captures: freeing a block queries the
  // streams, and a stream that captures must not be queried.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }

 private:
  struct Freed {
    void* data;
    size_t pinned_bytes;  // 0: device memory
    std::vector<cudaEvent_t> events;
  };

  void* take_pinned(size_t bytes);
  void free_later(void* data, size_t pinned_bytes) noexcept;
  bool captured() const noexcept;
  void free_held() noexcept;
  void free_after_streams(Freed freed) noexcept;
  void give_back(const Freed& freed) noexcept;
  template <typename Take>
  void wait_for_freed(Take&& take);
  bool collect() noexcept;
  void give_back_unused(bool wait) noexcept;
  cudaEvent_t take_event();
  bool passed(Freed& freed, bool wait) noexcept;

  const int device_;
  Watches& watches_;
  std::mutex mutex_;
  cudaStream_t pool_ = nullptr;  // for allocations only
  std::vector<cudaStream_t> streams_;
  std::deque<Freed> freed_;
  std::vector<Freed> held_;              // freed during a caller's capture
  uint64_t given_back_ = 0;              // number of blocks so far
  std::multimap<size_t, void*> pinned_;  // free, by size class
  std::vector<cudaEvent_t> events_;      // free
};

}  // namespace gangway::cuda
