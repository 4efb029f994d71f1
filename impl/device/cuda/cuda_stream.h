// Streams of a CUDA device. A stream queues operations and starts them together (segments.h). Every other use
// of the stream starts them first.
//
// Thread rule: a Stream's (device/device.h). StreamList and the queued operations: any thread.
#pragma once

#include <mutex>
#include <vector>

#include "device/cuda/segments.h"
#include "device/cuda/watches.h"
#include "device/device.h"

namespace gangway::cuda {

class CudaStream;

// The existing streams of a device.
class StreamList {
 public:
  void add(CudaStream* stream);
  void remove(CudaStream* stream) noexcept;
  // Starts the queued operations of all streams, and then throws the first failure.
  void submit();
  // Orders later work on `later` after the present work of all streams. `later` may be any stream of CUDA.
  // `point` is an event for the purpose.
  void order(cudaStream_t later, cudaEvent_t point);
  // For callers that cannot report a failure: each stream reports its own at its next use.
  void submit_quietly();

 private:
  std::recursive_mutex mutex_;  // recursive, because an operation that finds no memory calls submit()
  std::vector<CudaStream*> streams_;
};

class CudaStream final : public Stream {
 public:
  struct Owner {
    Device& device;
    int index;
    Memory& memory;
    StreamList& streams;
    Watches& watches;
    bool graphs;
  };
  // The destructor destroys an `owned` stream.
  CudaStream(const Owner& owner, cudaStream_t stream, bool owned);
  ~CudaStream() override;
  Device& device() override { return owner_.device; }
  void wait(Event& event) override;
  void synchronize() override;
  void* native() override { return ready(); }
  void submit() override { segments_.submit(); }

  cudaStream_t ready() { return segments_.ready(); }  // starts the queued operations first
  cudaStream_t handle() const { return stream_; }     // starts nothing; for comparisons
  void* workspace(size_t bytes);
  bool is_captured() { return segments_.capturing() || owner_.memory.is_captured(); }
  bool keeps() const { return owner_.graphs; }
  Segments& segments() { return segments_; }

 private:
  const Owner owner_;
  const cudaStream_t stream_;
  const bool owned_;
  Segments segments_;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace gangway::cuda
