// The numbers that each rank contributes before and after the microbatches of a step, and their sums over the
// mesh. Ranks exchange them in CollectiveCall::check, together with the results of their checks.
//
// Thread rule: values; local.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mesh/gangs.h"
#include "tensor/tensor.h"

namespace gangway {

// The numbers before the microbatches run.
struct BatchTotals {
  double weight = 0;
  int64_t tokens = 0;
  uint64_t batch = 0;    // PreparedBatch::checksum
  bool unknown = false;  // some rank does not know the shapes that stages of its pipeline exchange
  bool stop = false;     // some rank asks all ranks to stop after this step
  bool shares = false;   // PreparedBatch::shares_weight of some rank
};

// The numbers after the microbatches have run.
struct LossTotals {
  double loss = 0;
  bool finite = true;
  double weight = 0;  // what the model's loss says
};

// Returns a hash of tensors: dtypes, dims and, of tensors in host memory, values (reading others would make
// the host wait for the device). It is never 0.
uint64_t checksum_of(std::span<const Tensor> tensors);
// MISMATCH: ranks that differ only over cp have different checksums; 0 equals all. `all` is in rank order.
void check_same_rows_over_cp(const Gangs& gangs, const std::vector<uint64_t>& all);

// Sums the numbers of all ranks; `all` is in rank order. Numbers that are equal on several ranks (tp, pp)
// count once. MISMATCH: ranks of one data coordinate have different batches.
BatchTotals sum_over(const Gangs& gangs, const std::vector<BatchTotals>& all);
// Sums losses and weights in rank order; `finite` is true if it is on all ranks.
LossTotals sum_over(const Gangs& gangs, const std::vector<LossTotals>& all);

}  // namespace gangway
