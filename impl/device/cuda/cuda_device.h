// A device of CUDA: its streams, events and memory.
//
// - Plain memory comes from the device's own pool (cudaMallocAsync), which keeps what is freed, so that a step after the
//   first one asks the driver for nothing. A block that is freed goes back when every stream has run what it held then:
//   events tell, and the host never waits for them unless memory is short.
// - The rank's stream and those of make_stream do not wait for the legacy stream, nor it for them.
// - Operations that repeat are started as CUDA graphs, unless GANGWAY_CUDA_GRAPHS is 0 (segments.h).
// - A program's own current device is left as it was.
//
// Thread rule: a Device's (device/device.h).
#pragma once

#include <memory>
#include <string>

#include "device/cuda/calls.h"
#include "device/cuda/watches.h"
#include "device/device.h"

namespace gangway::cuda {

// `name`: "cuda:N" is device N; "cuda" is device DeviceOptions::index. NOT_SUPPORTED with numbers: no driver, one that is too old, no
// such device, an architecture for which there are no kernels.
std::shared_ptr<Device> make_cuda_device(const std::string& name, const DeviceOptions& options);

// Lines on driver and devices, for gw-info.
std::string describe_devices();

// A stream, ready for work: what it keeps back is started first. INTERNAL for a stream of another kind of device.
class CudaStream;
CudaStream& cuda_stream(Stream& stream);
cudaStream_t native(Stream& stream);
cudaEvent_t native(Event& event);

// Starts what the streams of the device keep back; a stream tells of a failure at its next use.
void submit_quietly(Device& device);

// Those who are asked while the host waits for a stream or an event of the device.
Watches& watches(Device& device);

// Memory for what one operation needs beside its arguments; the next operation on the stream uses it again. At least
// `bytes` bytes, aligned to 256. Valid until the next call for this stream.
void* workspace(Stream& stream, size_t bytes);

}  // namespace gangway::cuda
