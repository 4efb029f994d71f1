#include "train/totals.h"

#include <initializer_list>

#include "base/philox.h"

namespace gangway {
namespace {

int coordinate(const Gangs& gangs, size_t rank, Axis axis) {
  return gangs.mesh().coordinates(static_cast<int>(rank))[static_cast<size_t>(axis)];
}

// Returns the rank with the same coordinates, but 0 on `axes`.
size_t first_along(const Gangs& gangs, size_t rank, std::initializer_list<Axis> axes) {
  Coordinates at = gangs.mesh().coordinates(static_cast<int>(rank));
  for (const Axis axis : axes) at[static_cast<size_t>(axis)] = 0;
  return static_cast<size_t>(gangs.mesh().rank(at));
}

// Returns the rank with the same data coordinate and coordinate 0 on tp, cp and pp.
size_t first_of(const Gangs& gangs, size_t rank) {
  return first_along(gangs, rank, {Axis::tp, Axis::cp, Axis::pp});
}

int data_index(const Gangs& gangs, size_t rank) {
  return coordinate(gangs, rank, Axis::dp_replicate) * gangs.mesh().degree(Axis::dp_shard) +
         coordinate(gangs, rank, Axis::dp_shard);
}

void check_same_batches(const Gangs& gangs, const std::vector<BatchTotals>& all) {
  for (size_t r = 0; r < all.size(); ++r) {
    const size_t first = first_of(gangs, r);
    if (all[r].batch == all[first].batch || all[r].batch == 0 || all[first].batch == 0) continue;
    fail(Code::mismatch, "ranks ", first, " and ", r,
         " have one data coordinate, but their batches differ; ranks that differ only over tp, cp and pp "
         "take the same "
         "batch (gw_gangs_data_shard tells which)");
  }
}

bool replicas_differ(const Gangs& gangs, const std::vector<LossTotals>& all) {
  for (size_t r = 0; r < all.size(); ++r) {
    const auto sums = [&](std::initializer_list<Axis> axes) {
      return all[first_along(gangs, r, axes)].replicas;
    };
    const ReplicaSums& own = all[r].replicas;
    if (own.rows != sums({Axis::dp_replicate}).rows ||
        own.whole != sums({Axis::dp_replicate, Axis::dp_shard, Axis::cp}).whole ||
        own.unsplit != sums({Axis::tp}).unsplit)
      return true;
  }
  return false;
}

}  // namespace

uint64_t checksum_of(std::span<const Tensor> tensors) {
  uint64_t sum = 1;
  for (const Tensor& tensor : tensors) {
    sum = philox_key(sum, tensor.text());
    if (tensor.on_host() && tensor.raw() != nullptr && tensor.contiguous())
      sum = philox_key(sum, {tensor.data<char>(), tensor.bytes()});
  }
  return sum == 0 ? 1 : sum;
}

void check_same_rows_over_cp(const Gangs& gangs, const OfRank& checksum) {
  for (size_t r = 0; r < static_cast<size_t>(gangs.root()->size()); ++r) {
    const size_t first = first_along(gangs, r, {Axis::cp});
    const uint64_t own = checksum(r), firsts = checksum(first);
    if (own != firsts && own != 0 && firsts != 0)
      fail(Code::mismatch, "ranks ", first, " and ", r,
           " differ only over cp, but their rows differ; ranks of cp give the same whole rows, of which each "
           "computes a part");
  }
}

RowPlace row_place(const Gangs& gangs, const OfRank& rows) {
  const int own = data_index(gangs, static_cast<size_t>(gangs.root()->rank()));
  RowPlace place;
  for (size_t r = 0; r < static_cast<size_t>(gangs.root()->size()); ++r) {
    if (first_of(gangs, r) != r) continue;
    const auto of_rank = static_cast<int64_t>(rows(r));
    place.all += of_rank;
    if (data_index(gangs, r) < own) place.first += of_rank;
  }
  return place;
}

BatchSums sum_over(const Gangs& gangs, const std::vector<BatchTotals>& all) {
  check_same_batches(gangs, all);
  BatchSums sum;
  sum.first_row = row_place(gangs, [&all](size_t r) { return static_cast<uint64_t>(all[r].rows); }).first;
  for (size_t r = 0; r < all.size(); ++r) {
    sum.unknown = sum.unknown || all[r].unknown;
    sum.stop = sum.stop || all[r].stop;
    sum.shares = sum.shares || all[r].shares;
    // Ranks of one data coordinate pass the same batch, so that it counts once over tp and pp. Over cp all
    // count, because each cp rank counts its own part of the batch.
    if (coordinate(gangs, r, Axis::tp) != 0 || coordinate(gangs, r, Axis::pp) != 0) continue;
    sum.weight += all[r].weight;
    sum.tokens += all[r].tokens;
  }
  return sum;
}

LossSums sum_over(const Gangs& gangs, const std::vector<LossTotals>& all) {
  LossSums sum;
  sum.replicas_differ = replicas_differ(gangs, all);
  for (size_t r = 0; r < all.size(); ++r) {
    sum.finite = sum.finite && all[r].finite;
    // The loss is equal on all tp ranks. Each cp rank has a part of it, and pipeline stages without a head
    // have 0.
    if (coordinate(gangs, r, Axis::tp) != 0) continue;
    sum.loss += all[r].loss;
    sum.weight += all[r].weight;
  }
  return sum;
}

}  // namespace gangway
