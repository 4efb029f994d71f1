// The deferred device: a device over host memory whose streams are queues that run late. It stands in for an accelerator
// in tests of everything that is ordered by streams and events.
//
// - Each stream has a worker thread, which sleeps at random before its tasks. Events are real.
// - Operations and copies are the CPU's, run by the worker, so a right order gives the CPU's bits. A missing event shows
//   as another result, and under the thread sanitizer as a data race.
// - Its memory is MemoryKind::device. An address of it has a bit set that no mapped address has: host code that reads it
//   without a copy crashes, in every thread and at any time.
// - A freed block lives until the streams have run what they held, as on an accelerator with stream-ordered memory. A
//   queued task keeps no tensor alive.
//
// Its name is "deferred" or "deferred:SEED"; the seed sets the delays. A program that links it can make it by name, with
// its operations; gangway_deferred_gangs adds the engines of its gangs.
//
// Thread rule: a Device's, see device/device.h; the counters, limits and set_ignored_wait from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/device.h"
#include "ops/ops.h"

namespace gangway::deferred {

// What a task runs with, on the worker of its stream.
struct Worker {
  Device& cpu;
  Ops& ops;
  Stack& temporaries;
};

// Puts a task at the end of a deferred stream.
void enqueue(Stream& stream, std::function<void(Worker&)> task);

// Whether nothing is queued.
bool is_idle(const Stream& stream);

// How often a host thread blocked until a stream or an event of this device was done.
int64_t synchronizations(const Device& device);
void count_synchronization(Device& device);  // for what blocks by itself
// How often a stream of this device was told to wait for an event.
int64_t waits(const Device& device);
// Streams of high priority, on which collectives run, sleep so long before each task when they are made
// after this; 0: as others do.
void set_slow_collectives(Device& device, int microseconds);
// The device's plain memory; want of it is OUT_OF_MEMORY. 0: all there is.
void set_memory_limit(Device& device, uint64_t bytes);
// The wait with this number, counted from 0 over the device's life, is ignored; -1: none.
void set_ignored_wait(Device& device, int64_t number);

// Where a task finds what lies at a device address; an address of the host is itself.
void* reachable(const void* address);
Tensor reachable(const Tensor& tensor);

// What the device's file registers.
std::unique_ptr<Ops> make_deferred_ops(const std::shared_ptr<Device>& device);

}  // namespace gangway::deferred
