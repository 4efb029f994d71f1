// The numbers that each rank contributes before and after the microbatches of a step, and their sums over the
// mesh. Ranks exchange them in CollectiveCall::check, together with the results of their checks.
//
// Thread rule: values; local.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mesh/gangs.h"
#include "parallel/fsdp/replica_sums.h"
#include "tensor/tensor.h"

namespace gangway {

// The numbers before the microbatches run.
struct BatchTotals {
  double weight = 0;
  int64_t tokens = 0;
  uint64_t batch = 0;    // PreparedBatch::checksum
  int32_t rows = 0;      // of the rank's batch
  bool unknown = false;  // some rank does not know the shapes that stages of its pipeline exchange
  bool stop = false;     // some rank asks all ranks to stop after this step
  bool shares = false;   // PreparedBatch::shares_weight of some rank
};
struct BatchSums : BatchTotals {
  int64_t first_row = 0;  // the rows of the data coordinates before this rank's
};

// The numbers after the microbatches have run.
struct LossTotals {
  double loss = 0;
  double weight = 0;  // what the model's loss says
  ReplicaSums replicas = {};
  bool finite = true;
};
struct LossSums {
  double loss = 0;
  bool finite = true;
  double weight = 0;
  bool replicas_differ = false;  // some ranks must hold equal values, and do not
};

// Returns a hash of tensors: dtypes, dims and, of tensors in host memory, values (reading others would make
// the host wait for the device). It is never 0.
uint64_t checksum_of(std::span<const Tensor> tensors);
// What a rank has told of itself. The functions below take no memory: want of it on one rank would leave
// the others waiting, since the check phase is over.
using OfRank = std::function<uint64_t(size_t rank)>;
// MISMATCH: ranks that differ only over cp have different checksums; 0 equals all.
void check_same_rows_over_cp(const Gangs& gangs, const OfRank& checksum);

// Where this rank's rows lie among those of all data coordinates, which may have different numbers of rows.
struct RowPlace {
  int64_t first = 0, all = 0;
};
RowPlace row_place(const Gangs& gangs, const OfRank& rows);  // `rows`: of the rank's batch

// Sums the numbers of all ranks; `all` is in rank order. Numbers that are equal on several ranks (tp, pp)
// count once. MISMATCH: ranks of one data coordinate have different batches.
BatchSums sum_over(const Gangs& gangs, const std::vector<BatchTotals>& all);
// Sums losses and weights in rank order; `finite` is true if it is on all ranks. Compares checksums.
LossSums sum_over(const Gangs& gangs, const std::vector<LossTotals>& all);

}  // namespace gangway
