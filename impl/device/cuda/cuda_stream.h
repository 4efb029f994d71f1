// Streams of a CUDA device. Operations are kept back and started together (segments.h); everything else that uses the stream
// starts them first.
// Thread rule: a Stream's (device/device.h); what is kept back, and StreamList: any thread.
#pragma once

#include <mutex>
#include <vector>

#include "device/cuda/segments.h"
#include "device/cuda/watches.h"
#include "device/device.h"

namespace gangway::cuda {

class CudaStream;

// The living streams of a device.
class StreamList {
 public:
  void add(CudaStream* stream);
  void remove(CudaStream* stream) noexcept;
  // Starts what the streams keep back. Throws the first failure, after all were asked.
  void submit();
  // Later work on `later`, which need not be one of them, comes after what they hold by now. `point`: an event to use.
  void order(cudaStream_t later, cudaEvent_t point);
  // For one who cannot tell of a failure: each stream tells its own at its next use.
  void submit_quietly();

 private:
  std::recursive_mutex mutex_;  // an operation that finds no memory comes here again
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
  // `owned`: the stream is destroyed with this.
  CudaStream(const Owner& owner, cudaStream_t stream, bool owned);
  ~CudaStream() override;
  Device& device() override { return owner_.device; }
  void wait(Event& event) override;
  void synchronize() override;
  void* native() override { return ready(); }
  void submit() override { segments_.submit(); }

  cudaStream_t ready() { return segments_.ready(); }  // after what is kept back
  cudaStream_t handle() const { return stream_; }     // to compare
  void* workspace(size_t bytes);
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
