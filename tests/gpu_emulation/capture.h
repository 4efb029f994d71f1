// Stream capture and graphs. What is put on a stream that captures does not run but becomes the graph's; a launch of the graph
// runs it late, like any work. As on the real runtime, what cannot be in a graph is refused with its code and makes the capture
// invalid: to wait for the stream or to ask how far it is, a copy from or to plain memory of the host, an event from outside,
// and, by the capture's mode, calls that are unsafe beside a capture. Stricter than the real one: a capture is of one stream,
// and takes and frees no memory.
//
// Thread rule: any thread.
#pragma once

#include <functional>

#include "gpu_emulation/state.h"

namespace gpu_emulation {

// Takes the task if the stream captures; `error` is what the call returns then. False: the stream does not capture.
bool captures(cudaStream_t stream, const std::function<void(Runner&)>& task, cudaError_t& error);

// What a call that cannot be captured returns, with `what` for report(). cudaSuccess: the stream does not capture.
cudaError_t forbidden_in_capture(cudaStream_t stream, const char* what);
// The same of a call that no capture of this thread (or, by its mode, of any thread) goes together with.
cudaError_t unsafe_beside_captures(const char* what);

// An event is recorded on a stream, which captures or not; true: the capture has it.
bool captures_record(cudaStream_t stream, cudaEvent_t event, cudaError_t& error);
// The stream waits for an event; true: the capture of one of them decides what the call returns.
bool captures_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t& error);
// What asks for the state of an event that was recorded in a capture returns; cudaSuccess: it was not.
cudaError_t captured_event(cudaEvent_t event);

// Graphs, executable ones and captures that are not given back.
int64_t living_graphs();

}  // namespace gpu_emulation
