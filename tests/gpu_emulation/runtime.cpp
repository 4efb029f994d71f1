#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu_emulation/capture.h"
#include "gpu_emulation/log.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/ptx/kernels.h"
#include "gpu_emulation/sanitizer.h"
#include "gpu_emulation/state.h"

namespace gpu_emulation {
namespace {

struct Awaited {
  int left;
  cudaError_t error;
};

struct All {
  std::mutex mutex;
  Settings settings;
  std::map<std::string, int64_t, std::less<>> calls;
  std::map<std::string, Awaited, std::less<>> awaited;
  cudaError_t faults[kMostDevices] = {};
  std::string report;
  std::set<cudaStream_t> streams;
  cudaStream_t legacy[kMostDevices] = {};  // made at their first use, never destroyed
  std::set<cudaEvent_t> events;
  std::vector<std::weak_ptr<Queue>> ended;  // queues of destroyed streams, whose work still runs
  uint32_t made = 0;

  All() {
    const auto number = [](const char* name, auto& value) {
      if (const char* const text = std::getenv(name))
        value = static_cast<std::decay_t<decltype(value)>>(std::atoll(text));
    };
    number("GPU_EMULATION_DEVICES", settings.devices);
    number("GPU_EMULATION_MEMORY", settings.memory);
    number("GPU_EMULATION_SEED", settings.seed);
    number("GPU_EMULATION_DRIVER", settings.driver);
    number("GPU_EMULATION_ARCHITECTURE", settings.architecture);
    number("GPU_EMULATION_RING", settings.ring);
    number("GPU_EMULATION_NCCL", settings.nccl);
    number("GPU_EMULATION_NCCL_WINDOWS", settings.nccl_windows);
    number("GPU_EMULATION_RACES", settings.races);
  }
};
All& all() {
  static auto* const all = new All;  // never destroyed, because threads of streams outlive all other objects
  return *all;
}

thread_local int current = 0;
thread_local std::string kernel_name;

// Makes a stream of the current device. The caller holds the lock.
cudaStream_t make_stream() {
  const uint32_t number = ++all().made;
  return new CUstream_st{std::make_shared<Queue>(current, all().settings.seed + number), number};
}

}  // namespace

Settings settings() {
  const Unseen unseen;
  const std::lock_guard lock(all().mutex);
  return all().settings;
}
void set(const Settings& settings) {
  const std::lock_guard lock(all().mutex);
  all().settings = settings;
}
void fail_call(const std::string& name, int nth, cudaError_t error) {
  const std::lock_guard lock(all().mutex);
  all().awaited[name] = {nth, error};
}
int64_t calls(const std::string& name) {
  const std::lock_guard lock(all().mutex);
  return all().calls[name];
}
void reset() {
  const std::lock_guard lock(all().mutex);
  all().awaited.clear();
  all().report.clear();
  for (cudaError_t& fault : all().faults) fault = cudaSuccess;
}
std::string report() {
  const std::lock_guard lock(all().mutex);
  return all().report;
}
int64_t living() {
  std::vector<std::weak_ptr<Queue>> ended;
  {
    const std::lock_guard lock(all().mutex);
    ended = all().ended;
  }
  for (const auto& each : ended)
    if (const auto queue = each.lock()) queue->drain();
  int64_t count = pinned_blocks() + living_graphs();
  for (int d = 0; d < kMostDevices; ++d) count += device_blocks(d);
  const std::lock_guard lock(all().mutex);
  return count + static_cast<int64_t>(all().streams.size() + all().events.size());
}

void tally(const std::string& name) {
  const std::lock_guard lock(all().mutex);
  ++all().calls[name];
}
cudaError_t enter(const char* name) {
  const std::lock_guard lock(all().mutex);
  // The number of queries depends on time, so they do not count as calls of "*".
  const bool asks = std::string_view(name).ends_with("Query");
  for (const char* const counted : {name, "*"}) {
    if (asks && counted != name) break;
    ++all().calls[counted];
    const auto found = all().awaited.find(counted);
    if (found != all().awaited.end() && --found->second.left == 0) {
      const cudaError_t error = found->second.error;
      all().awaited.erase(found);
      return error;
    }
  }
  return cudaSuccess;
}

cudaError_t fault_of(int device) {
  const Unseen unseen;
  const std::lock_guard lock(all().mutex);
  return all().faults[device];
}
void keep_fault(int device, const Fault& fault) {
  const Unseen unseen;
  const std::lock_guard lock(all().mutex);
  if (all().faults[device] == cudaSuccess) all().faults[device] = fault.code;
  if (all().report.empty()) all().report = fault.report;
}
cudaError_t refuse(cudaError_t error, const std::string& words) {
  const std::lock_guard lock(all().mutex);
  if (all().report.empty()) all().report = words;
  return error;
}

cudaStream_t stream_behind(cudaStream_t handle) {
  const std::lock_guard lock(all().mutex);
  if (handle != cudaStreamLegacy) return all().streams.contains(handle) ? handle : nullptr;
  cudaStream_t& legacy = all().legacy[current];
  if (legacy == nullptr) legacy = make_stream();
  return legacy;
}
bool is_living(cudaEvent_t event) {
  const std::lock_guard lock(all().mutex);
  return all().events.contains(event);
}

int current_device() { return current; }

void drain(std::optional<int> device) {
  std::vector<std::shared_ptr<Queue>> queues;
  {
    const std::lock_guard lock(all().mutex);
    const auto add = [&](cudaStream_t stream) {
      if (stream != nullptr && (!device || stream->queue->device() == *device))
        queues.push_back(stream->queue);
    };
    for (const cudaStream_t stream : all().streams) add(stream);
    for (const cudaStream_t stream : all().legacy) add(stream);
  }
  for (const auto& queue : queues) queue->drain();
}

cudaError_t enqueue(cudaStream_t handle, std::function<void(Runner&)> task) {
  const cudaStream_t stream = stream_behind(handle);
  if (stream == nullptr)
    return refuse(cudaErrorInvalidResourceHandle,
                  "work for a stream that does not exist (null, or a destroyed one)");
  const int device = stream->queue->device();
  if (device != current)
    return refuse(cudaErrorInvalidResourceHandle, "work for a stream of device " + std::to_string(device) +
                                                      " while device " + std::to_string(current) +
                                                      " is current");
  if (const cudaError_t fault = fault_of(device)) return fault;
  const auto guarded = [device, task = std::move(task)](Runner& runner) {
    if (fault_of(device) != cudaSuccess) return;
    const Access access;
    task(runner);
  };
  cudaError_t error = cudaSuccess;
  if (!captures(stream, guarded, error)) stream->queue->push(guarded);
  return error;
}

int shared_bytes_of_block() {
  switch (settings().architecture) {
    case 80:
    case 87: return 163 * 1024;
    case 86:
    case 89:
    case 120: return 99 * 1024;
    default: return kMostSharedBytes;
  }
}

void name_next_kernel(const char* name) { kernel_name = name; }

cudaError_t launch(const void* kernel, const LaunchShape& shape, std::span<const Argument> arguments,
                   std::function<void()> body, cudaStream_t stream) {
  const std::string name = kernel_name.empty() ? "without a name" : std::exchange(kernel_name, {});
  if (const cudaError_t error = enter("cudaLaunchKernel")) return error;
  const auto threads = uint64_t{1} * shape.block.x * shape.block.y * shape.block.z;
  const auto blocks = uint64_t{1} * shape.grid.x * shape.grid.y * shape.grid.z;
  if (threads == 0 || threads > kThreadsPerBlock || blocks == 0 || shape.grid.x > 0x7fffffffu ||
      shape.grid.y > 65535 || shape.grid.z > 65535 ||
      shape.shared_bytes > static_cast<size_t>(shared_bytes_of_block()))
    return refuse(cudaErrorInvalidConfiguration,
                  "kernel " + name + ": " + std::to_string(blocks) + " blocks of " + std::to_string(threads) +
                      " threads with " + std::to_string(shape.shared_bytes) + " bytes of shared memory");
  for (const Argument& argument : arguments)
    for (size_t at = 0; at + 8 <= argument.bytes; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(argument.data) + at, 8);
      if (is_plain_host_memory(word)) {
        keep_fault(current, {cudaErrorIllegalAddress,
                             "kernel " + name + ": an argument points to plain memory of the host"});
        return cudaErrorIllegalAddress;
      }
    }
  if (ptx::chosen()) {
    std::string why;
    body = ptx::body_of(kernel, shape, arguments, why);
    if (!body) return refuse(cudaErrorInvalidValue, why);
  }
  log_kernel(stream, name, shape.grid);
  if (blocks * threads > kThreadsDone && modelled()) return enqueue(stream, [](Runner&) {});
  return enqueue(stream, [name, shape, body = std::move(body), device = current](Runner& runner) {
    const Settings now = settings();
    if (const auto fault = runner.run(name, shape, body, now.seed, now.races)) keep_fault(device, *fault);
  });
}

}  // namespace gpu_emulation

using namespace gpu_emulation;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    case cudaErrorUnknown: return "cudaErrorUnknown";
  }
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  thread_local std::string words;
  words = report();
  return words.empty() ? cudaGetErrorName(error) : words.c_str();
}
cudaError_t cudaGetLastError() { return fault_of(current); }

cudaError_t cudaDriverGetVersion(int* version) {
  if (const cudaError_t error = enter(__func__)) return error;
  *version = settings().driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = enter(__func__)) return error;
  const Settings now = settings();
  if (now.driver < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  *count = now.devices;
  return now.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = enter(__func__)) return error;
  if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = enter(__func__)) return error;
  const Settings now = settings();
  if (device < 0 || device >= now.devices) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = now.architecture / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = now.architecture % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_bytes_of_block(); break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  ENTER();
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER();
  *total = settings().memory;
  *free = *total - device_bytes(current);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  ENTER();
  const Where place = where(data);
  *attributes = {};
  switch (place.place) {
    case Place::host: attributes->type = cudaMemoryTypeUnregistered; break;
    case Place::pinned: attributes->type = cudaMemoryTypeHost; break;
    case Place::device: attributes->type = cudaMemoryTypeDevice; break;
  }
  attributes->device = place.device;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  ENTER();
  if (flags != cudaStreamNonBlocking)
    return refuse(cudaErrorInvalidValue, "a stream that waits for the legacy stream");
  const std::lock_guard lock(all().mutex);
  *stream = make_stream();
  all().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  enter(__func__);
  const std::lock_guard lock(all().mutex);
  if (all().streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
  stream->queue->end();
  std::erase_if(all().ended, [](const auto& queue) { return queue.expired(); });
  all().ended.push_back(stream->queue);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER();
  if ((stream = stream_behind(stream)) == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = forbidden_in_capture(stream, "a wait for the end of work")) return error;
  log_host_wait(stream->queue->device(), stream, 0);
  stream->queue->drain();
  return fault_of(stream->queue->device());
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER();
  if ((stream = stream_behind(stream)) == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = forbidden_in_capture(stream, "a question for the state of work"))
    return error;
  return stream->queue->idle() ? fault_of(stream->queue->device()) : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  ENTER();
  stream = stream_behind(stream);
  if (stream == nullptr || !is_living(event)) return cudaErrorInvalidResourceHandle;
  cudaError_t error = cudaSuccess;
  if (captures_wait(stream, event, error)) return error;
  const std::lock_guard lock(event->mutex);
  if (event->point == nullptr) return cudaSuccess;
  log(stream, {.work = Work::wait, .name = __func__, .event = event->point->number});
  stream->queue->push([point = event->point](Runner&) { point->wait(); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  ENTER();
  const std::lock_guard lock(all().mutex);
  *event = new CUevent_st{current, {}, nullptr, 0, flags != cudaEventDisableTiming};
  all().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  enter(__func__);
  const std::lock_guard lock(all().mutex);
  if (all().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER();
  stream = stream_behind(stream);
  if (stream == nullptr || !is_living(event)) return cudaErrorInvalidResourceHandle;
  if (event->device != stream->queue->device())
    return refuse(cudaErrorInvalidResourceHandle, "an event of another device than the stream's");
  cudaError_t error = cudaSuccess;
  if (captures_record(stream, event, error)) return error;
  auto point = std::make_shared<Point>();
  {
    const std::lock_guard lock(event->mutex);
    event->point = point;
  }
  log(stream, {.work = Work::record, .name = __func__, .event = point->number});
  stream->queue->push([point = std::move(point)](Runner&) { point->reach(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER();
  if (!is_living(event)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = unsafe_beside_captures("cudaEventQuery")) return error;
  if (const cudaError_t error = captured_event(event)) return error;
  const std::lock_guard lock(event->mutex);
  return event->point == nullptr || event->point->reached() ? fault_of(event->device) : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER();
  if (!is_living(event)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = unsafe_beside_captures("cudaEventSynchronize")) return error;
  if (const cudaError_t error = captured_event(event)) return error;
  std::shared_ptr<Point> point;
  {
    const std::lock_guard lock(event->mutex);
    point = event->point;
  }
  if (point != nullptr) {
    log_host_wait(event->device, nullptr, point->number);
    point->wait();
  }
  return fault_of(event->device);
}
// Like CUDA, wants events that keep times, were recorded and have been reached.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  ENTER();
  double at[2] = {};
  for (const auto& [event, time] : {std::pair(start, &at[0]), std::pair(end, &at[1])}) {
    if (!is_living(event) || !event->timed) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = captured_event(event)) return error;
    const std::lock_guard lock(event->mutex);
    if (event->point == nullptr) return cudaErrorInvalidResourceHandle;
    if (!event->point->reached()) return cudaErrorNotReady;
    *time = event->point->milliseconds();
  }
  *milliseconds = static_cast<float>(at[1] - at[0]);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  ENTER();
  if (const cudaError_t error = unsafe_beside_captures("cudaDeviceSynchronize")) return error;
  drain(current);
  return fault_of(current);
}
