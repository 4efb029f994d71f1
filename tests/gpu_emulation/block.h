// Runs the blocks of a kernel, one after another, on the calling thread. Each thread of a block is a fiber. A
// fiber runs alone from one barrier or exchange within a warp to the next one. A seed determines the order of
// fibers, warps and blocks: 0 is ascending, 1 is descending, others are shuffled. So a kernel that misses a
// barrier or depends on an order gives different results for different seeds. Kernels that tell of their
// accesses are also searched for races, which no order need show (races.h).
//
// A fault ends the kernel: an access outside of memory (memory.h), threads that wait at different lines, or
// threads that wait for others that never come.
//
// Thread rule: one Runner for each thread of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gpu_emulation/kernel.h"

namespace gpu_emulation {

struct Fault {
  cudaError_t code;
  std::string report;
};

class Block;

class Runner {
 public:
  Runner();
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Returns the fault that ended the kernel, if there was one.
  std::optional<Fault> run(const std::string& name, const LaunchShape& shape,
                           const std::function<void()>& body, uint32_t seed, bool races);

 private:
  std::unique_ptr<Block> block_;
};

// The handler of SIGSEGV lets a faulty fiber continue here. It never returns to the kernel.
[[noreturn]] void leave_faulty_fiber();
// Returns whether the calling thread runs a fiber.
bool in_fiber();

}  // namespace gpu_emulation
