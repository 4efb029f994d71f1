// Bytes that kernels read and write of device memory, by count of their own accesses. The kernels are compiled with
// -fsanitize=thread, which calls a function before each access, and these functions count (traffic.cpp).
//
// Thread rule: one thread watches and takes, while no kernel runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpu_emulation {

struct Moved {
  uint64_t read = 0, written = 0;
};
// Counts accesses to these bytes apart from others, from now on.
void watch(const void* data, size_t bytes);
// Of what is watched, in order, then of all other device memory: workspaces. Ends the watch.
std::vector<Moved> take_moved();

}  // namespace gpu_emulation
