// The deferred device: a device over host memory whose streams are queues that run late. It stands in for an
// accelerator in tests of everything that streams and events order.
//
// - Each stream has a worker thread, which sleeps at random before its tasks. Events are real.
// - The worker runs the CPU's operations and copies, so a correct order gives the CPU's bits. A missing event
//   shows as another result, and under the thread sanitizer as a data race.
// - Its memory is MemoryKind::device. Its addresses have a bit set that no mapped address has: host code that
//   reads them without a copy crashes, in every thread and at any time.
// - A freed block lives until the streams have run what they held, as on an accelerator with stream-ordered
//   memory. A queued task keeps no tensor alive.
//
// Its name is "deferred" or "deferred:SEED"; the seed sets the delays. A program that links it can make the
// device by name, with its operations. gangway_deferred_gangs adds the engines of its gangs.
//
// Thread rule: a Device's, see device/device.h; any thread may use the counters, limits and set_ignored_wait.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/device.h"
#include "ops/ops.h"

namespace gangway::deferred {

// What a task gets from the worker of its stream.
struct Worker {
  Device& cpu;
  Ops& ops;
  Stack& temporaries;
};

// Appends a task to a deferred stream.
void enqueue(Stream& stream, std::function<void(Worker&)> task);

// Returns whether the stream has run all its tasks.
bool is_idle(const Stream& stream);

// Returns how often a host thread blocked until a stream or an event of this device was done.
int64_t synchronizations(const Device& device);
// Counts a host thread that blocks in another way.
void count_synchronization(Device& device);
// Returns how often a stream of this device was told to wait for an event.
int64_t waits(const Device& device);
// Sets how long streams of high priority, on which collectives run, sleep before each task. It holds for
// streams that are made later. 0 means at random, like other streams.
void set_slow_collectives(Device& device, int microseconds);
// Limits the device's plain memory. An allocation above the limit is OUT_OF_MEMORY. 0 means no limit.
void set_memory_limit(Device& device, uint64_t bytes);
// Makes streams ignore the wait with this number, counted from 0 over the device's life. -1 means none.
void set_ignored_wait(Device& device, int64_t number);

// Returns the host address, or a tensor at it, with which a task accesses a device address. An address of the
// host is returned unchanged.
void* host_address(const void* address);
Tensor host_address(const Tensor& tensor);

// Makes the device's operations. The device's source file registers this function.
std::unique_ptr<Ops> make_deferred_ops(const std::shared_ptr<Device>& device);

}  // namespace gangway::deferred
