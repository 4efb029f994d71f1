// Counts the bytes of device memory that kernels read and write. The kernels are compiled with
// -fsanitize=thread, so that they call a function before each access. These functions count (traffic.cpp), and
// tell the software GPU, which looks for races (races.h) and counts sectors and bank conflicts of warps
// (warp_accesses.h).
//
// Thread rule: one thread calls watch and take_moved, while no kernel runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu_emulation/warp_accesses.h"

namespace gpu_emulation {

struct Moved {
  uint64_t read = 0, written = 0;
};
// From now on, counts accesses to these bytes separately.
void watch(const void* data, size_t bytes);
// Returns the counts of the watched ranges, in the order of the calls, and then that of all other device
// memory, which is workspaces. Stops watching.
std::vector<Moved> take_moved();

}  // namespace gpu_emulation
