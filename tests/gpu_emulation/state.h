// What the parts of the software GPU share: settings, counted calls, faults, the handles behind CUDA's pointers.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gpu_emulation/emulator.h"
#include "gpu_emulation/queue.h"

struct CUstream_st {
  std::shared_ptr<gpu_emulation::Queue> queue;
  uint64_t number = 0;  // in the log
};
struct CUevent_st {
  int device;
  std::mutex mutex;
  std::shared_ptr<gpu_emulation::Point> point;  // null: never recorded
  uint64_t capture = 0;                         // the capture that recorded it last (capture.h); 0: none
};

namespace gpu_emulation {

// At the head of every call: counts it. The error that it has to return, if it was asked for.
cudaError_t enter(const char* name);

// The fault of a device stays. cudaSuccess: it has none.
cudaError_t fault_of(int device);
void keep_fault(int device, const Fault& fault);

// Handles in use; what is not is an error, not a crash. Of a stream: the one behind the handle, as cudaStreamLegacy is that of the
// current device, which exists without being created. Null: there is none.
cudaStream_t stream_behind(cudaStream_t handle);
bool is_living(cudaEvent_t event);

// Puts work on a stream, or into its capture; it does not run if the device has a fault before. An error, with words for report(), if the
// stream is none or of another device than the current one.
cudaError_t enqueue(cudaStream_t stream, std::function<void(Runner&)> task);
// The device that this thread has set.
int current_device();
// Waits for the work on a device's streams. Nothing: on every device's.
void drain(std::optional<int> device);

// "call: words" for report(); returns `error`.
cudaError_t refuse(cudaError_t error, const std::string& words);

}  // namespace gpu_emulation

// The head of a call on the current device: what it returns before it does anything.
#define ENTER()                                                               \
  if (const cudaError_t error = gpu_emulation::enter(__func__)) return error; \
  if (const cudaError_t fault = gpu_emulation::fault_of(gpu_emulation::current_device())) return fault
