// Numbers of one rank around a step, and their sums over the mesh. They travel with the verdicts of
// CollectiveCall::check.
//
// Thread rule: values; local.
#pragma once

#include <cstdint>
#include <vector>

#include "mesh/gangs.h"

namespace gangway {

// What goes into a step.
struct Totals {
  int64_t weight = 0, tokens = 0;
  uint64_t batch = 0;    // PreparedBatch::checksum
  bool unknown = false;  // what travels between the stages of a pipeline, on some rank
};

// What came out of its microbatches.
struct Outcome {
  double loss = 0;
  bool finite = true;
};

// `all`: each rank's, in rank order. What is equal on several ranks (tp, pp) counts once. MISMATCH: ranks of one data
// coordinate have other batches.
Totals sum_over(const Gangs& gangs, const std::vector<Totals>& all);
// Loss summed in rank order, finite where all are.
Outcome sum_over(const Gangs& gangs, const std::vector<Outcome>& all);

}  // namespace gangway
