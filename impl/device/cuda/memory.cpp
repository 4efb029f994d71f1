#include "device/cuda/memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace gangway::cuda {
namespace {

// There are eight size classes for each doubling. Requests of similar sizes share blocks, and at most an
// eighth is wasted.
size_t size_class(size_t bytes) {
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 8, 512);
  return (bytes + step - 1) / step * step;
}

}  // namespace

Memory::Memory(int device, Watches& watches) : device_(device), watches_(watches) {
  const OnDevice on(device_);
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device_), "cudaDeviceGetDefaultMemPool");
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  check(cudaStreamCreateWithPriority(&pool_, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
}

Memory::~Memory() {
  free_held();
  give_back_unused(/*wait=*/true);
  cudaStreamSynchronize(pool_);
  for (const auto& [bytes, data] : pinned_) cudaFreeHost(data);
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaStreamDestroy(pool_);
}

// Calls `take` each time that blocks have come back, until it succeeds or no freed block is in use. The lock
// is released between two attempts, so that other threads can free blocks.
template <typename Take>
void Memory::wait_for_freed(Take&& take) {
  uint64_t seen = 0;
  watches_.wait([&] {
    const std::lock_guard lock(mutex_);
    if (!collect())
      return true;  // nothing comes back before the capture ends, for which this thread may be needed
    if (given_back_ == seen && !freed_.empty()) return false;
    seen = given_back_;
    return take() || freed_.empty();
  });
}

void* Memory::allocate(size_t bytes) {
  const OnDevice on(device_);
  void* data = nullptr;
  cudaError_t error = cudaSuccess;
  const auto take = [&] {
    error = cudaMallocAsync(&data, bytes, pool_);
    if (error == cudaErrorMemoryAllocation) cudaGetLastError();
    return error != cudaErrorMemoryAllocation;
  };
  std::unique_lock lock(mutex_);
  collect();
  if (!take() && !freed_.empty()) {
    lock.unlock();
    wait_for_freed(take);
    lock.lock();
  }
  if (error == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(Code::out_of_memory, "device cuda:", device_, " has ", free, " of ", total, " bytes free: ", bytes,
         " more are wanted",
         held_.empty() ? "" : "; blocks that were freed during a capture come back after its end");
  }
  check(error, "cudaMallocAsync");
  // The pool's stream has no other work, so this hardly waits. Afterwards every stream may use the block.
  if (const cudaError_t late = cudaStreamSynchronize(pool_)) {
    cudaFreeAsync(data, pool_);
    check(late, "cudaMallocAsync");
  }
  return data;
}

void* Memory::allocate_pinned(size_t bytes) {
  const OnDevice on(device_);
  bytes = size_class(bytes);
  void* data = nullptr;
  std::unique_lock lock(mutex_);
  collect();
  data = take_pinned(bytes);
  if (data != nullptr) return data;
  cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    lock.unlock();
    wait_for_freed([&] { return (data = take_pinned(bytes)) != nullptr; });
    lock.lock();
    if (data != nullptr) return data;
    for (const auto& [size, kept] : pinned_) cudaFreeHost(kept);
    pinned_.clear();
    error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  }
  check(error, "cudaHostAlloc");
  return data;
}

void* Memory::take_pinned(size_t bytes) {
  const auto kept = pinned_.find(bytes);
  if (kept == pinned_.end()) return nullptr;
  void* const data = kept->second;
  pinned_.erase(kept);
  return data;
}

void Memory::free(void* data) noexcept { free_later(data, 0); }
void Memory::free_pinned(void* data, size_t bytes) noexcept { free_later(data, size_class(bytes)); }

void Memory::free_later(void* data, size_t pinned_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Freed freed{data, pinned_bytes, {}};
  if (!captured()) {
    free_held();
    free_after_streams(std::move(freed));
    give_back_unused(/*wait=*/false);
  } else {
    try {
      held_.push_back(std::move(freed));
    } catch (...) {  // without memory for the list the block is lost, as nothing can tell when it is unused
    }
  }
}

// Returns whether a caller captures one of the streams. The legacy stream cannot be asked while another
// stream is captured that it would wait for.
bool Memory::captured() const noexcept {
  try {
    const OnDevice on(device_);
    for (const cudaStream_t stream : streams_) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      const cudaError_t error = cudaStreamIsCapturing(stream, &status);
      if (error != cudaSuccess) cudaGetLastError();
      if (error == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone) return true;
    }
  } catch (...) {  // a device that has failed captures nothing
  }
  return false;
}

bool Memory::is_captured() noexcept {
  const std::lock_guard lock(mutex_);
  return captured();
}

void Memory::free_held() noexcept {
  for (Freed& freed : std::exchange(held_, {})) free_after_streams(std::move(freed));
}

void Memory::free_after_streams(Freed freed) noexcept {
  try {
    const OnDevice on(device_);
    for (const cudaStream_t stream : streams_) {
      if (cudaStreamQuery(stream) == cudaSuccess) continue;
      cudaGetLastError();  // forgets "not ready", which is not an error here
      freed.events.reserve(freed.events.size() + 1);
      const cudaEvent_t event = take_event();
      freed.events.push_back(event);
      check(cudaEventRecord(event, stream), "cudaEventRecord");
    }
    freed_.push_back(std::move(freed));
  } catch (...) {  // no memory for the list, or a device that has failed
    const OnDevice on(device_, std::nothrow);
    for (const cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
    for (const cudaEvent_t event : freed.events) cudaEventDestroy(event);
    freed.events.clear();
    give_back(freed);
  }
}

Memory::Work Memory::work() noexcept {
  const std::lock_guard lock(mutex_);
  if (captured()) return Work::captured;
  const OnDevice on(device_, std::nothrow);
  for (const cudaStream_t stream : streams_) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // forgets "not ready", which is not an error here
      return Work::running;
    }
  }
  return Work::done;
}

void Memory::trim() noexcept {
  const std::lock_guard lock(mutex_);
  if (!collect()) return;
  const OnDevice on(device_, std::nothrow);
  cudaStreamSynchronize(pool_);
  cudaMemPool_t pool = nullptr;
  if (cudaDeviceGetDefaultMemPool(&pool, device_) == cudaSuccess) cudaMemPoolTrimTo(pool, 0);
}

void Memory::add(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void Memory::remove(cudaStream_t stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
}

void Memory::give_back(const Freed& freed) noexcept {
  if (freed.pinned_bytes == 0) {
    cudaFreeAsync(freed.data, pool_);
    return;
  }
  try {
    pinned_.emplace(freed.pinned_bytes, freed.data);
  } catch (...) {
    cudaFreeHost(freed.data);
  }
}

// Gives back the blocks that no stream uses any more. While a caller captures, returns false and does
// nothing.
bool Memory::collect() noexcept {
  if (captured()) return false;
  free_held();
  give_back_unused(/*wait=*/false);
  return true;
}

// Gives back the blocks that no stream uses any more, or, if `wait` is set, waits and gives back all.
void Memory::give_back_unused(bool wait) noexcept {
  while (!freed_.empty()) {
    if (!passed(freed_.front(), wait)) return;
    give_back(freed_.front());
    freed_.pop_front();
    ++given_back_;
  }
}

bool Memory::passed(Freed& freed, bool wait) noexcept {
  while (!freed.events.empty()) {
    const cudaEvent_t event = freed.events.back();
    const cudaError_t state = wait ? cudaEventSynchronize(event) : cudaEventQuery(event);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    freed.events.pop_back();  // also after an error, because a device that has failed runs nothing any more
    events_.push_back(event);
  }
  return true;
}

cudaEvent_t Memory::take_event() {
  cudaEvent_t event = nullptr;
  if (events_.empty()) {
    events_.reserve(events_.capacity() + 1);
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }
  event = events_.back();
  events_.pop_back();
  return event;
}

}  // namespace gangway::cuda
