// Where the rows of a tensor lie over the axes of a mesh. Pure data: it names axes, it knows no gang.
//
// A layout is an ordered list of placements, one per axis that matters, the outermost split first (with tensor
// parallelism the tp split comes first, FSDP splits the local piece). An axis that is not listed replicates.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace gangway {

struct Placement {
  enum class Kind : uint8_t { shard, replicate, partial };
  Kind kind = Kind::replicate;
  std::string axis;  // a mesh axis or several joined by '+', like "dp_shard+cp"
  int dim = 0;       // the tensor dimension that a shard splits
  // Shard only: rank i of the axis holds rows [bounds[i], bounds[i + 1]) of dim. Explicit, so that unequal shards and
  // fused projections need no new code.
  std::vector<int64_t> bounds;

  static Placement shard(std::string axis, int dim, std::vector<int64_t> bounds);
  static Placement replicate(std::string axis);
  static Placement partial(std::string axis);
};

using Layout = std::vector<Placement>;

// FSDP's split of n rows over W ranks in pieces of ceil(n / W): n = 5, W = 4 gives 0 2 4 5 5.
std::vector<int64_t> ceil_bounds(int64_t n, int64_t ranks);
// The balanced split: one more row where index < n % P. n = 5, P = 4 gives 0 2 3 4 5.
std::vector<int64_t> balanced_bounds(int64_t n, int64_t ranks);

// "dp_shard: Shard(0), tp: Shard(1)"; "replicated" for an empty layout.
std::string describe(const Layout& layout);

}  // namespace gangway
