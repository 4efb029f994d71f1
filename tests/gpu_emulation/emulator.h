// The software GPU: CUDA's runtime, cuBLASLt and NCCL, as far as Gangway uses them, on threads of the host, so that the
// CUDA module's own code runs and is checked where no GPU is. It has the names of CUDA's libraries (include/), and is
// stricter than they are:
// - kernels: block.h
// - memory: memory.h
// - streams: each is a queue that its own thread runs late, with pauses at random (queue.h); the legacy one of a device
//   has its handle alone, cudaStreamLegacy: null is no stream
// - graphs: capture.h
// - an argument of a kernel that points to plain memory of the host is a fault
// - a fault stays: later calls on the device return it, until reset()
//
// What it does not show: speed, the numbers of tensor cores, races of threads within a warp that the order of fibers does
// not bring out.
//
// The environment sets it up: GPU_EMULATION_DEVICES (8), _MEMORY (bytes of each; 4 GiB), _SEED (2), _DRIVER (13000),
// _ARCHITECTURE (90). This header is for tests.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

namespace gpu_emulation {

struct Settings {
  int devices = 8;
  uint64_t memory = uint64_t{4} << 30;
  uint32_t seed = 2;  // of the order within kernels, and of pauses; 0 and 1: no pauses
  int driver = 13000;
  int architecture = 90;
  bool modelled = false;  // log.h
};
Settings settings();
void set(const Settings& settings);

// The call number `nth` of `name` from now on, counted from 1, returns `error`; of every name if it is "*". A call that gives something back
// gives it back all the same.
void fail_call(const std::string& name, int nth, cudaError_t error);
// Calls of `name` so far; of all names if it is "*".
int64_t calls(const std::string& name);
// Faults are forgotten, and what fail_call asked for.
void reset();
// The first fault since reset(), in words; empty: none.
std::string report();

// What is not given back. Blocks of memory, streams, events and graphs. Waits for the work of streams that were destroyed.
int64_t living();

}  // namespace gpu_emulation
