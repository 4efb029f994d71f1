// Bytes that the module's own kernels move, by count of their own accesses, beside the least possible: every operand read or
// written once. Vectors that all rows or threads share (weights of a norm, a row's statistic, tables of angles, ids) are read again for each
// of them, by a broadcast or out of a cache: they are counted once, and how much was read again is told apart.
//
// Thread rule: one thread at a time; the software GPU is the process's.
#pragma once

#include <string>
#include <vector>

namespace gangway::timeline {

struct KernelTraffic {
  std::string operation, dtype;
  double least = 0, moved = 0, again = 0;  // bytes
  double limit = 1.05;                     // of moved over least
  std::string reason;                      // of another limit
};
std::vector<KernelTraffic> kernel_traffic();

}  // namespace gangway::timeline
