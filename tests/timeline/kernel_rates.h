// Rates of the module's own kernels on an H200, estimated from what nvcc made of them: the record of
// tests/bench/cuda_static.py.
//
// Kernels on tensor cores. A multiprocessor's four schedulers each issue an instruction a cycle. A product
// (HMMA of 16 x 8 x 16, 4096 flops) would take 4 cycles at the peak; by `mma.sync`, which these kernels use,
// Hopper reaches 0.63 of the peak (Luo and others, "Benchmarking and Dissecting the Nvidia Hopper GPU
// Architecture via Microbenchmarking", 2024), so P = 6.35 cycles. Beside each product are I - 1 other
// instructions, where I is the record's figure. With one warp at a scheduler products and the others take
// turns; with w warps, which follow from the resident threads, all but 1 / w of the shorter of the two hides
// behind the longer: max(P, I - 1) + min(P, I - 1) / w cycles a product.
//
// Other kernels are bound by memory. By Little's law a multiprocessor gets the bytes in flight of its
// resident threads once in each latency, and all of them together at most the memory's rate.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "timeline/simulate.h"

namespace gangway::timeline {

struct Multiprocessors {
  int count = 132;
  double clock = 1.83e9;      // at which the peak is stated
  double latency_s = 0.8e-6;  // of a busy memory
  double mma_share = 0.63;
};

// How much of the instructions beside the products hides behind them.
enum class Overlap { none, by_warps, all };

struct InstanceFigures {
  double instructions = 0;  // for each product of the tensor cores; 0: the kernel has none
  double in_flight = 0;     // bytes of a thread
  double threads = 0;       // resident ones of a multiprocessor
};
KernelRate rate_of(const InstanceFigures& figures, const Rates& rates, const Multiprocessors& gpu,
                   Overlap overlap);

// Returns the rate of each kernel, by its name in a log. The kernels are the instances that a decoder in bf16
// with heads of 128 uses. Throws if the record at `path` does not have all of them.
std::map<std::string, KernelRate> kernel_rates(const std::string& path, const Rates& rates,
                                               Overlap overlap = Overlap::by_warps);

}  // namespace gangway::timeline
