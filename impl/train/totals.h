// The numbers that each rank contributes before and after the microbatches of a step, and their sums over the
// mesh. Ranks exchange them in CollectiveCall::check, together with the results of their checks.
//
// Thread rule: values; local.
#pragma once

#include <cstdint>
#include <vector>

#include "mesh/gangs.h"

namespace gangway {

// The numbers before the microbatches run.
struct BatchTotals {
  int64_t weight = 0, tokens = 0;
  uint64_t batch = 0;    // PreparedBatch::checksum
  bool unknown = false;  // some rank does not know the shapes that stages of its pipeline exchange
  bool stop = false;     // some rank asks all ranks to stop after this step
};

// The numbers after the microbatches have run.
struct LossTotals {
  double loss = 0;
  bool finite = true;
};

// Sums the numbers of all ranks; `all` is in rank order. Numbers that are equal on several ranks (tp, pp)
// count once. MISMATCH: ranks of one data coordinate have different batches.
BatchTotals sum_over(const Gangs& gangs, const std::vector<BatchTotals>& all);
// Sums the losses in rank order; `finite` is true if it is on all ranks.
LossTotals sum_over(const Gangs& gangs, const std::vector<LossTotals>& all);

}  // namespace gangway
