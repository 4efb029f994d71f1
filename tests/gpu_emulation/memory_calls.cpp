// CUDA's calls for device memory, pinned memory, copies and fills.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "gpu_emulation/capture.h"
#include "gpu_emulation/log.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/state.h"

using namespace gpu_emulation;

namespace {

// Returns whether [at, at + bytes) lies in one block. For plain memory of the host it is not known, and the
// result is true.
bool holds(const void* at, size_t bytes) {
  const Where place = where(at);
  return place.place == Place::host || place.rest >= bytes;
}

}  // namespace

cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  ENTER();
  if ((stream = stream_behind(stream)) == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = forbidden_in_capture(stream, "cudaMallocAsync")) return error;
  *data = allocate_device(stream->queue->device(), bytes, settings().memory);
  if (*data == nullptr) {  // the stream may have freed memory before
    stream->queue->drain();
    *data = allocate_device(stream->queue->device(), bytes, settings().memory);
  }
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  enter(__func__);
  if ((stream = stream_behind(stream)) == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = forbidden_in_capture(stream, "cudaFreeAsync")) return error;
  if (where(data).place != Place::device) return cudaErrorInvalidValue;
  stream->queue->push([data](Runner&) {
    if (!free_device(data)) std::abort();
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  ENTER();
  if (const cudaError_t error = unsafe_beside_captures("cudaHostAlloc")) return error;
  *data = settings().pinned ? allocate_pinned(bytes) : nullptr;
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  enter(__func__);
  if (const cudaError_t error = unsafe_beside_captures("cudaFreeHost")) return error;
  drain(std::nullopt);  // like CUDA, waits for all work that may use the block
  return free_pinned(data) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTER();
  if (bytes == 0) return cudaSuccess;
  if (kind != cudaMemcpyDefault) return refuse(cudaErrorInvalidValue, "a copy that names its direction");
  if (!holds(to, bytes) || !holds(from, bytes))
    return refuse(cudaErrorInvalidValue, "a copy of " + std::to_string(bytes) + " bytes leaves its block");
  if (where(to).place == Place::host || where(from).place == Place::host)
    if (const cudaError_t error = forbidden_in_capture(stream, "a copy of plain memory of the host"))
      return error;
  log(stream, {.work = Work::copy, .name = __func__, .bytes = 2.0 * static_cast<double>(bytes)});
  return enqueue(stream, [to, from, bytes](Runner&) {
    if (!leaves_out(bytes)) std::memmove(to, from, bytes);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  ENTER();
  if (bytes == 0) return cudaSuccess;
  if (where(to).place == Place::host || !holds(to, bytes))
    return refuse(cudaErrorInvalidValue, "a memset of " + std::to_string(bytes) + " bytes leaves its block");
  log(stream, {.work = Work::set, .name = __func__, .bytes = static_cast<double>(bytes)});
  return enqueue(stream, [to, value, bytes](Runner&) {
    if (!leaves_out(bytes)) std::memset(to, value, bytes);
  });
}
