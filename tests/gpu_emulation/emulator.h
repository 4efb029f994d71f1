// The software GPU implements the parts of CUDA's runtime, cuBLASLt and NCCL that Gangway uses, on threads of
// the host. So the code of the CUDA module runs, and is checked, on machines without a GPU. It has the names
// of CUDA's libraries (include/) and is stricter than they are:
// - kernels: block.h
// - memory: memory.h
// - streams: each one is a queue that its own thread runs late, with random pauses (queue.h). The legacy
//   stream of a device is known only as cudaStreamLegacy; null is not a stream
// - graphs: capture.h
// - an argument of a kernel that points to plain memory of the host is a fault
// - a fault stays: later calls on the device return it, until reset()
//
// It does not show speed or the numbers of tensor cores. Races that no order of fibers shows are found in
// kernels that are compiled with -fsanitize=thread, and in PTX (races.h). With GPU_EMULATION_PTX it runs the
// PTX that nvcc made of the kernels in place of their source (ptx/kernels.h).
//
// Variables of the environment configure it: GPU_EMULATION_DEVICES (8), _MEMORY (bytes of each device; 4
// GiB), _SEED (2), _DRIVER (13000), _ARCHITECTURE (90), _RING (0), _NCCL (22800),
// _NCCL_WINDOWS (1), _RACES (1). This header is for tests.
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
  uint32_t seed = 2;  // of the order within kernels, and of pauses; 0 and 1: without pauses
  int driver = 13000;
  int architecture = 90;
  bool modelled = false;     // log.h
  bool ring = false;         // NCCL reduces like a ring (reduce.h), except between symmetric windows
  int nccl = 22800;          // the version that NCCL tells
  bool nccl_windows = true;  // ranks reach each other's memory, so that NCCL makes windows
  bool pinned = true;        // false: the host gives no pinned memory
  bool races = true;         // races of kernels that tell of their accesses are faults
};
Settings settings();
void set(const Settings& settings);

// Lets the nth call of `name` from now on, counted from 1, return `error`. "*" stands for every name. A call
// that frees something frees it nevertheless.
void fail_call(const std::string& name, int nth, cudaError_t error);
// Returns the number of calls of `name` so far, or of all names if it is "*". "symmetric all_reduce
// of 2" stands for such collectives of NCCL, by communicators of 2 ranks, between symmetric windows.
int64_t calls(const std::string& name);
// Forgets faults and the requests of fail_call.
void reset();
// Returns the text of the first fault since reset(), or an empty string.
std::string report();

// Returns the number of blocks of memory, streams, events and graphs that are not freed or destroyed. Waits
// for the work of destroyed streams first.
int64_t living();

}  // namespace gpu_emulation
