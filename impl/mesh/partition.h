// Partitions: a list of workers, ranks of a base gang, that stand in a grid (as DistDL has them). Worker i has the
// row-major index i, the last dim fastest.
//
// All of it is local and pure data: ranks that make the same calls hold the same partitions, a sub-topology apart, which
// each rank has of its own group. What moves tensors between workers makes its gangs from these lists
// (parallel/partition.h). A rank that is no worker is inactive: it holds the partition, too, and takes part in the
// collective creation of what moves, with tensors of zero elements.
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
  // Every rank of `base`, in one dim.
  explicit Partition(GangPtr base);

  // The workers `ranks` of this one, in that order; one dim. INVALID_ARGUMENT: none, one twice, one outside.
  Partition inclusive(std::span<const int> ranks) const;
  // These workers, then those of `other` that are not among them; one dim. INVALID_ARGUMENT: partitions of other gangs.
  Partition unite(const Partition& other) const;
  // The same workers in a grid. INVALID_ARGUMENT: no dim, over 8, one below 1, a product that is not the size.
  Partition cartesian(std::span<const int> shape) const;
  // The workers that share this rank's index on all other dims, in a grid of the kept ones, in the order of the dims.
  // Empty on an inactive rank. INVALID_ARGUMENT: a dim that is not there, or twice; none.
  Partition subtopology(std::span<const int> kept) const;

  const GangPtr& base() const { return base_; }
  const std::vector<int>& ranks() const { return ranks_; }  // of the base, of each worker
  const std::vector<int>& shape() const { return shape_; }  // workers along each dim
  int dims() const { return static_cast<int>(shape_.size()); }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank() const { return rank_; }  // this rank's place; -1: inactive
  bool active() const { return rank_ >= 0; }
  std::vector<int> index() const { return index_of(rank_); }  // empty: inactive
  std::vector<int> index_of(int worker) const;
  int worker_at(std::span<const int> index) const;
  // The workers before and after this one along `dim`; -1: this one is at the edge, or inactive.
  std::pair<int, int> neighbors(int dim) const;

  // The dims that `dims` names or, where `kept` is given, all that it does not. INVALID_ARGUMENT, from `call`: both or
  // neither (null) are given, a dim that is not there or is named twice.
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
