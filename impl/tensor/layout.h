// Where the rows of a tensor lie over the axes of a mesh. Pure data: it names axes, it knows no gang.
//
// A layout is an ordered list of placements, one per axis that matters, the outermost split first (with tensor
// parallelism the tp split comes first, FSDP splits the local piece). Bounds count in the piece that the placements
// before left, so they differ between ranks whose pieces do. An axis that is not listed replicates.
//
// Four kinds of placement over an axis of W ranks:
//   shard      each rank holds its rows; the value is the pieces joined
//   replicate  all ranks hold the value; it is one value, and so is its gradient
//   varying    all ranks hold the value, and each goes on with it by itself: its gradient is the sum of theirs
//   partial    each rank holds a part of the size of the whole; the value is their sum
//
// Thread rule: values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace gangway {

struct Placement {
  enum class Kind : uint8_t { shard, replicate, partial, varying };
  Kind kind = Kind::replicate;
  std::string axis;  // a mesh axis or several joined by '+', like "dp_shard+cp"
  int dim = 0;       // the tensor dimension that a shard splits
  // Shard only: rank i of the axis holds rows [bounds[i], bounds[i + 1]) of dim. Explicit, so that unequal shards and
  // fused projections need no new code.
  std::vector<int64_t> bounds;
  // Split only while nothing computes with it (FSDP): compute sees the pieces of all ranks joined. Such placements come
  // last.
  bool at_rest = false;

  static Placement shard(std::string axis, int dim, std::vector<int64_t> bounds);
  static Placement replicate(std::string axis);
  static Placement partial(std::string axis);
  static Placement varying(std::string axis);
  friend bool operator==(const Placement&, const Placement&) = default;
};

using Layout = std::vector<Placement>;

// FSDP's split of n rows over W ranks in pieces of ceil(n / W): n = 5, W = 4 gives 0 2 4 5 5.
std::vector<int64_t> ceil_bounds(int64_t n, int64_t ranks);
// The balanced split: one more row where index < n % P. n = 5, P = 4 gives 0 2 3 4 5.
std::vector<int64_t> balanced_bounds(int64_t n, int64_t ranks);

// A part of a tensor: rows [first[d], first[d] + shape[d]) of every dim d.
struct Box {
  std::array<int64_t, kMaxDims> first{};
  Shape shape;
  int64_t last(int d) const { return first[static_cast<size_t>(d)] + shape[d]; }
};
Box whole_box(const Shape& shape);

Tensor slice(const Tensor& tensor, const Box& box);  // a view

// What a rank owns of a tensor of shape `global` that is index place[i] on the axis of placement i.
Box local_box(const Layout& layout, const Shape& global, std::span<const int> place);
// Likewise without the placements at rest: what compute sees.
Box compute_box(const Layout& layout, const Shape& global, std::span<const int> place);

// A placement over `axis` or over a product that has it as a factor; null: none.
const Placement* find_axis(const Layout& layout, const std::string& axis);
// All axes that split, joined by '+' in the order of the layout; empty: none.
std::string shard_axes(const Layout& layout);
// INVALID_ARGUMENT: an axis twice, a dim that the tensor has not, bounds that do not rise from 0 to the rows that this
// rank's outer splits leave, or a placement in use after one at rest.
void check(const Layout& layout, const Shape& global, std::span<const int> place, const std::string& name);

// Calls run(global, local, count) for the longest runs of elements that lie together both in the row-major tensor of
// shape `global` (from element `global`) and in the row-major box (from element `local`), in order.
template <typename Run>
void for_each_run(const Shape& global, const Box& box, Run&& run) {
  if (box.shape.count() == 0) return;
  int split = global.rank();  // dims from here on are whole
  while (split > 0 && box.shape[split - 1] == global[split - 1]) --split;
  const int rows = std::max(split - 1, 0);  // dims before it are walked row by row
  const std::array<int64_t, kMaxDims> strides = row_major(global);
  const int64_t count = box.shape.count_from(rows);
  for (int64_t local = 0; local < box.shape.count(); local += count) {
    int64_t at = 0, rest = local / count;
    for (int d = rows; d < global.rank(); ++d)
      at += box.first[static_cast<size_t>(d)] * strides[static_cast<size_t>(d)];
    for (int d = rows - 1; d >= 0; --d) {
      at += (box.first[static_cast<size_t>(d)] + rest % box.shape[d]) * strides[static_cast<size_t>(d)];
      rest /= box.shape[d];
    }
    run(at, local, count);
  }
}

// "dp_shard: Shard(0), tp: Shard(1)"; "replicated" for an empty layout.
std::string describe(const Layout& layout);

}  // namespace gangway
