// Partitions, as in DistDL: a list of workers, which are ranks of a base gang, in a grid. Worker i is at the
// row-major index i, with the last dim fastest.
//
// Partitions are local, pure data. Ranks that make the same calls have the same partitions, except
// sub-topologies, where each rank has its own group. Objects that move tensors between workers make their
// gangs from these lists (parallel/movement/movement.h). A rank that is not a worker is inactive. It has the
// partition too, and takes part in the collective creation of those objects, with tensors of zero elements.
//
// Thread rule: values.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gang/gang.h"

namespace gangway {

constexpr int kMaxPartitionDims = 8;

class Partition {
 public:
  // Makes a partition of every rank of `base`, in one dim.
  explicit Partition(GangPtr base);

  // Returns a partition of the workers `ranks` of this one, in that order, in one dim. INVALID_ARGUMENT: the
  // list is empty, or a worker is listed twice or does not exist.
  Partition inclusive(std::span<const int> ranks) const;
  // Returns a partition of these workers, followed by those of `other` that are not among them, in one dim.
  // INVALID_ARGUMENT: the partitions have different base gangs.
  Partition unite(const Partition& other) const;
  // Arranges the same workers in a grid. INVALID_ARGUMENT: there are no dims or more than 8, a dim is below
  // 1, or the product is not the number of workers.
  Partition cartesian(std::span<const int> shape) const;
  // Returns the workers that have this rank's index on all dims that are not kept, in a grid of the kept
  // dims, in their order. It is empty on an inactive rank. INVALID_ARGUMENT: a dim does not exist or is named
  // twice, or none is kept.
  Partition subtopology(std::span<const int> kept) const;

  const GangPtr& base() const { return base_; }
  const std::vector<int>& ranks() const { return ranks_; }  // each worker's rank in the base gang
  const std::vector<int>& shape() const { return shape_; }  // workers along each dim
  int dims() const { return static_cast<int>(shape_.size()); }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank() const { return rank_; }  // this rank's worker number; -1: inactive
  bool active() const { return rank_ >= 0; }
  std::vector<int> index() const { return index_of(rank_); }  // empty: inactive
  std::vector<int> index_of(int worker) const;
  int worker_at(std::span<const int> index) const;
  // Returns the workers before and after this one along `dim`. -1 means that there is none, or that this rank
  // is inactive.
  std::pair<int, int> neighbors(int dim) const;

  // Returns the dims in `dims` or, if `kept` is given, all dims that are not in `kept`. INVALID_ARGUMENT,
  // with `call` in the text: both or neither are given, or a dim does not exist or is named twice.
  std::vector<int> dims_of(const char* call, const std::vector<int>* dims,
                           const std::vector<int>* kept) const;
  std::string text() const;  // "[2, 3] of ranks 0, 1, 2, 3, 4, 5"

 private:
  Partition(GangPtr base, std::vector<int> ranks, std::vector<int> shape);
  void check_dims(const char* call, std::span<const int> dims) const;

  GangPtr base_;
  std::vector<int> ranks_, shape_;
  int rank_ = -1;
};

}  // namespace gangway
