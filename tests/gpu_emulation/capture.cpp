#include "gpu_emulation/capture.h"

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {
using Tasks = std::vector<std::function<void(gpu_emulation::Runner&)>>;
}

struct CUgraph_st {
  int device;
  std::shared_ptr<const Tasks> tasks;
};
struct CUgraphExec_st {
  int device;
  std::shared_ptr<const Tasks> tasks;  // shared with runs that outlive the handle
};

namespace gpu_emulation {
namespace {

struct Capture {
  uint64_t number;  // counted over all captures, from 1
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool valid = true;
  Tasks tasks;
};

struct All {
  std::mutex mutex;
  std::map<cudaStream_t, Capture> captures;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  uint64_t made = 0;
};
All& all() {
  static auto* const all = new All;
  return *all;
}

// Returns the capture of a stream, or null. The caller holds the mutex.
Capture* capture_of(cudaStream_t stream) {
  const auto found = all().captures.find(stream);
  return found == all().captures.end() ? nullptr : &found->second;
}
cudaError_t invalidate(Capture& capture, cudaError_t error, const std::string& words) {
  capture.valid = false;
  return refuse(error, words);
}

}  // namespace

bool captures(cudaStream_t stream, const std::function<void(Runner&)>& task, cudaError_t& error) {
  const std::lock_guard lock(all().mutex);
  Capture* const capture = capture_of(stream);
  if (capture == nullptr) return false;
  error = capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  if (capture->valid) capture->tasks.push_back(task);
  return true;
}

cudaError_t forbidden_in_capture(cudaStream_t stream, const char* what) {
  const std::lock_guard lock(all().mutex);
  Capture* const capture = capture_of(stream);
  if (capture == nullptr) return cudaSuccess;
  return invalidate(*capture, cudaErrorStreamCaptureUnsupported,
                    std::string(what) + " on a stream that captures");
}

cudaError_t unsafe_beside_captures(const char* what) {
  const std::lock_guard lock(all().mutex);
  cudaError_t error = cudaSuccess;
  for (auto& [stream, capture] : all().captures) {
    const bool mine = capture.thread == std::this_thread::get_id();
    if (capture.mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture.mode == cudaStreamCaptureModeThreadLocal && !mine) continue;
    error = invalidate(capture, cudaErrorStreamCaptureUnsupported, std::string(what) + " beside a capture");
  }
  return error;
}

bool captures_record(cudaStream_t stream, cudaEvent_t event, cudaError_t& error) {
  const std::lock_guard lock(all().mutex);
  const Capture* const capture = capture_of(stream);
  const std::lock_guard event_lock(event->mutex);
  event->capture = 0;
  if (capture == nullptr) return false;
  event->capture = capture->number;
  error = capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  return true;
}

bool captures_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t& error) {
  const std::lock_guard lock(all().mutex);
  Capture* const capture = capture_of(stream);
  const std::lock_guard event_lock(event->mutex);
  if (capture == nullptr) {
    if (event->capture == 0) return false;
    error = refuse(cudaErrorStreamCaptureUnsupported, "a wait for an event of another stream's capture");
    return true;
  }
  error = capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  if (capture->valid && event->capture != capture->number && event->point != nullptr)
    error = invalidate(*capture, cudaErrorStreamCaptureIsolation,
                       "a stream that captures waits for an event that was recorded outside");
  return true;
}

cudaError_t captured_event(cudaEvent_t event) {
  const std::lock_guard lock(all().mutex);
  const std::lock_guard event_lock(event->mutex);
  if (event->capture == 0) return cudaSuccess;
  for (auto& [stream, capture] : all().captures)
    if (capture.number == event->capture) capture.valid = false;
  return refuse(cudaErrorCapturedEvent, "the state of an event that was recorded in a capture");
}

int64_t living_graphs() {
  const std::lock_guard lock(all().mutex);
  return static_cast<int64_t>(all().captures.size() + all().graphs.size() + all().executables.size());
}

}  // namespace gpu_emulation

using namespace gpu_emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = enter(__func__)) return error;
  if (stream == nullptr || stream == cudaStreamLegacy)
    return refuse(cudaErrorStreamCaptureUnsupported, "a capture of the legacy stream");
  if (stream_behind(stream) == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t fault = fault_of(stream->queue->device())) return fault;
  const std::lock_guard lock(all().mutex);
  const Capture capture = {++all().made, mode, std::this_thread::get_id(), true, {}};
  if (!all().captures.emplace(stream, capture).second)
    return refuse(cudaErrorIllegalState, "a second capture of a stream");
  return cudaSuccess;
}

// The capture ends even if a test lets this call fail.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const cudaError_t asked = enter(__func__);
  *graph = nullptr;
  const std::lock_guard lock(all().mutex);
  const auto found = all().captures.find(stream);
  if (found == all().captures.end()) return refuse(cudaErrorIllegalState, "the end of no capture");
  if (found->second.mode != cudaStreamCaptureModeRelaxed &&
      found->second.thread != std::this_thread::get_id())
    return invalidate(found->second, cudaErrorStreamCaptureWrongThread,
                      "the end of a capture that another thread began");
  const Capture capture = std::move(found->second);
  all().captures.erase(found);
  if (asked != cudaSuccess) return asked;
  if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st{stream->queue->device(), std::make_shared<const Tasks>(capture.tasks)};
  all().graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = enter(__func__)) return error;
  if (stream_behind(stream) == nullptr) return cudaErrorInvalidResourceHandle;
  const std::lock_guard lock(all().mutex);
  const Capture* const capture = capture_of(stream);
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
            : capture->valid   ? cudaStreamCaptureStatusActive
                               : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (const cudaError_t error = enter(__func__)) return error;
  const std::lock_guard lock(all().mutex);
  if (!all().graphs.contains(graph) || flags != 0) return cudaErrorInvalidValue;
  *executable = new CUgraphExec_st{graph->device, graph->tasks};
  all().executables.insert(*executable);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return error;
  std::shared_ptr<const Tasks> tasks;
  {
    const std::lock_guard lock(all().mutex);
    if (!all().executables.contains(executable)) return cudaErrorInvalidValue;
    if (executable->device != current_device())
      return refuse(cudaErrorInvalidValue, "a graph of a device that is not the current one");
    tasks = executable->tasks;
  }
  if (const cudaError_t error = forbidden_in_capture(stream, "the launch of a made graph")) return error;
  return enqueue(stream, [tasks](Runner& runner) {
    for (const auto& task : *tasks) task(runner);
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  enter(__func__);
  const std::lock_guard lock(all().mutex);
  if (all().graphs.erase(graph) == 0) return cudaErrorInvalidValue;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  enter(__func__);
  const std::lock_guard lock(all().mutex);
  if (all().executables.erase(executable) == 0) return cudaErrorInvalidValue;
  delete executable;
  return cudaSuccess;
}
