// What the parts of the software GPU share: settings, counted calls, faults, and the objects behind CUDA's
// handles.
//
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
  bool timed = false;                           // made without cudaEventDisableTiming
};

namespace gpu_emulation {

// Every call of CUDA begins with enter(). It counts the call, and returns the error that a test asked for
// (fail_call).
cudaError_t enter(const char* name);
// Counts something that is no call, for calls().
void tally(const std::string& name);

// Returns the fault of a device, which stays until reset(), or cudaSuccess.
cudaError_t fault_of(int device);
void keep_fault(int device, const Fault& fault);

// Check whether a handle is in use, so that a wrong handle gives an error, not a crash. stream_behind returns
// the stream, or null. For cudaStreamLegacy it returns the legacy stream of the current device, which exists
// without being created.
cudaStream_t stream_behind(cudaStream_t handle);
bool is_living(cudaEvent_t event);

// Puts work on a stream, or into its capture. The work does not run if the device has a fault by then.
// Returns an error, with a text for report(), if the stream does not exist or belongs to another device than
// the current one.
cudaError_t enqueue(cudaStream_t stream, std::function<void(Runner&)> task);
// Returns the device that this thread has set.
int current_device();
// Waits for the work on all streams of a device, or of all devices if there is no value.
void drain(std::optional<int> device);

// Keeps the words for report(), and returns `error`.
cudaError_t refuse(cudaError_t error, const std::string& words);

}  // namespace gpu_emulation

// Begins a call on the current device: returns an error that a test asked for, or the fault of the device.
#define ENTER()                                                               \
  if (const cudaError_t error = gpu_emulation::enter(__func__)) return error; \
  if (const cudaError_t fault = gpu_emulation::fault_of(gpu_emulation::current_device())) return fault
