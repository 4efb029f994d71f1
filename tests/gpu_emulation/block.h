// Runs the blocks of a kernel, one after another, on the calling thread. Each thread of a block is a fiber. Between two
// meetings (barrier, exchange within a warp) a fiber runs alone, and the order in which fibers, warps and blocks run comes
// from a seed: 0 is ascending, 1 descending, others are shuffled. So a kernel that misses a barrier, or that leans on an
// order, gives different results for different seeds.
//
// A fault ends the kernel: an access outside memory (memory.h), threads that wait at different lines, threads that wait
// for others which never come.
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

  // Nothing: the kernel has run.
  std::optional<Fault> run(const std::string& name, const LaunchShape& shape,
                           const std::function<void()>& body, uint32_t seed);

 private:
  std::unique_ptr<Block> block_;
};

// Called by the handler of SIGSEGV in a fiber: the fiber goes on here, and never returns.
[[noreturn]] void leave_faulty_fiber();
// Whether the calling thread runs a fiber now.
bool in_fiber();

}  // namespace gpu_emulation
