#include "device/cuda/cuda_stream.h"

#include <exception>

#include "device/cuda/cuda_device.h"

namespace gangway::cuda {

void StreamList::add(CudaStream* stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}
void StreamList::remove(CudaStream* stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
}
// The started operations are destroyed after the mutex is released, because they may release a caller's
// memory, and that runs the caller's code.
void StreamList::submit() {
  std::vector<Segments::Operations> done;
  std::exception_ptr first;
  {
    const std::lock_guard lock(mutex_);
    done.resize(streams_.size());
    for (size_t i = 0; i < streams_.size(); ++i) try {
        streams_[i]->segments().submit(done[i]);
      } catch (...) {
        if (first == nullptr) first = std::current_exception();
      }
  }
  if (first != nullptr) std::rethrow_exception(first);
}
void StreamList::order(cudaStream_t later, cudaEvent_t point) {
  submit();
  const std::lock_guard lock(mutex_);
  for (const CudaStream* const stream : streams_) {
    if (stream->handle() == later) continue;
    check(cudaEventRecord(point, stream->handle()), "cudaEventRecord");
    check(cudaStreamWaitEvent(later, point, 0), "cudaStreamWaitEvent");
  }
}
void StreamList::submit_quietly() {
  std::vector<Segments::Operations> done;
  const std::lock_guard lock(mutex_);
  done.resize(streams_.size());
  for (size_t i = 0; i < streams_.size(); ++i) streams_[i]->segments().submit_quietly(done[i]);
}

CudaStream::CudaStream(const Owner& owner, cudaStream_t stream, bool owned)
    : owner_(owner), stream_(stream), owned_(owned), segments_(owner.memory, owner.index, stream) {
  owner_.memory.add(stream_);
  owner_.streams.add(this);
}

// Waits for the stream's work. The device must be current, because the handle of the legacy stream means that
// of the current device.
CudaStream::~CudaStream() {
  const OnDevice on(owner_.index, std::nothrow);
  owner_.streams.remove(this);
  try {
    submit();
  } catch (...) {  // a destructor cannot report it
  }
  cudaStreamSynchronize(stream_);
  segments_.forget();
  if (workspace_ != nullptr) owner_.memory.free(workspace_);
  owner_.memory.remove(stream_);
  if (owned_) cudaStreamDestroy(stream_);
}

void CudaStream::wait(Event& event) {
  const OnDevice on(owner_.index);
  check(cudaStreamWaitEvent(ready(), cuda::native(event), 0), "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  const OnDevice on(owner_.index);
  const cudaStream_t stream = ready();
  const auto done = [&] {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(state, "cudaStreamQuery");
    return true;
  };
  if (!owner_.watches.empty()) owner_.watches.wait(done);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void* CudaStream::workspace(size_t bytes) {
  submit();
  if (bytes <= workspace_bytes_) return workspace_;
  // This cannot happen: a segment runs once before it is captured, and a workspace never shrinks.
  if (segments_.capturing())
    fail(Code::internal, "device ", owner_.device.name(), ": the workspace of ", workspace_bytes_,
         " bytes must grow to ", bytes, " in a capture");
  void* const larger = owner_.memory.allocate(bytes);
  segments_.forget();
  if (workspace_ != nullptr) owner_.memory.free(workspace_);
  workspace_ = larger;
  workspace_bytes_ = bytes;
  return workspace_;
}

}  // namespace gangway::cuda
