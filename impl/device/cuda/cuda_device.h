// A device of CUDA: its streams, events and memory.
//
// - Device memory comes from the device's own pool (cudaMallocAsync). The pool keeps freed memory, so that
//   steps after the first one allocate nothing from the driver. A freed block goes back to the pool when
//   every stream has finished the work that it held at that time. Events show this; the host waits for them
//   only when memory runs out.
// - The rank's stream and the streams of make_stream do not synchronise with the legacy stream.
// - Operations that repeat are started as CUDA graphs, unless GANGWAY_CUDA_GRAPHS is 0 (segments.h).
// - Every call restores the program's current device.
//
// Thread rule: a Device's (device/device.h).
#pragma once

#include <memory>
#include <string>

#include "device/cuda/calls.h"
#include "device/cuda/watches.h"
#include "device/device.h"

namespace gangway::cuda {

// `name` is "cuda:N" for device N, or "cuda" for device DeviceOptions::index. Throws NOT_SUPPORTED if there
// is no driver, if the driver is too old, or if the module has no kernels for the architecture, and
// INVALID_ARGUMENT if the machine has no device of this number.
std::shared_ptr<Device> make_cuda_device(const std::string& name, const DeviceOptions& options);

// Returns lines on the driver and the devices, for gw-info.
std::string describe_devices();

class CudaStream;
// Throws INTERNAL if the stream belongs to a device of another kind.
CudaStream& cuda_stream(Stream& stream);
// Starts the operations that the stream has queued (segments.h), and returns CUDA's stream.
cudaStream_t native(Stream& stream);
cudaEvent_t native(Event& event);

// Starts the queued operations of all streams of the device. A stream reports a failure at its next use.
void submit_quietly(Device& device);

// Returns whether the stream is captured for a graph, or a caller captures a stream of its device. Then the
// host must not wait for the device.
bool is_captured(Stream& stream);

// The objects that are asked while the host waits for a stream or an event of the device.
Watches& watches(Device& device);

class Memory;
Memory& device_memory(Device& device);

// Each stream that computes has so much scratch memory for its products. NVIDIA advises this size for sm_90.
constexpr size_t kStreamWorkspaceBytes = size_t{32} << 20;
// Returns at least `bytes` bytes of scratch memory for one operation, aligned to 256 bytes. It is valid until
// the next call for this stream, because the next operation on the stream uses the same memory.
void* workspace(Stream& stream, size_t bytes);

}  // namespace gangway::cuda
