// Stream capture and graphs. Work on a stream that captures does not run, but is added to the graph. A launch
// of the graph runs it late, like any work.
//
// As in CUDA, a call that a graph cannot contain gets CUDA's error code and invalidates the capture: waits
// for the stream, queries of the stream, copies from or to plain memory of the host, events from outside,
// and, depending on the capture's mode, calls that are unsafe during a capture. This version is stricter than
// CUDA: a capture has only one stream, and allocates and frees no memory.
//
// Thread rule: any thread.
#pragma once

#include <functional>

#include "gpu_emulation/state.h"

namespace gpu_emulation {

// If the stream captures: takes the task, sets `error` to the call's result, and returns true. Otherwise
// returns false.
bool captures(cudaStream_t stream, const std::function<void(Runner&)>& task, cudaError_t& error);

// Returns the error of a call that cannot be captured, or cudaSuccess if the stream does not capture. `what`
// names the call for report().
cudaError_t forbidden_in_capture(cudaStream_t stream, const char* what);
// The same for a call that is unsafe during any capture of this thread or, depending on the mode, of any
// thread.
cudaError_t unsafe_beside_captures(const char* what);

// Records an event if the stream captures, and returns whether it does.
bool captures_record(cudaStream_t stream, cudaEvent_t event, cudaError_t& error);
// Handles a stream's wait for an event if the stream captures or the event belongs to a capture. Returns
// whether it did, with the call's result in `error`.
bool captures_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t& error);
// Returns the error of a query of an event that was recorded in a capture, or cudaSuccess for any other
// event.
cudaError_t captured_event(cudaEvent_t event);

// Returns the number of graphs, executable graphs and captures that are not destroyed.
int64_t living_graphs();

}  // namespace gpu_emulation
