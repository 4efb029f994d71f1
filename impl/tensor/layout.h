// Where the rows of a tensor lie over the axes of a mesh. A layout is pure data: it names axes and knows no
// gang.
//
// A layout is an ordered list of placements, one for each axis that matters, with the outermost split first.
// With tensor parallelism, the split over tp comes first, and FSDP splits the piece that it leaves. Bounds
// count rows of the piece that the earlier placements leave, so ranks with different pieces have different
// bounds. A tensor is replicated over an axis that is not listed.
//
// There are four kinds of placement over an axis of W ranks:
//   shard      each rank holds its rows; the value is all pieces concatenated
//   replicate  all ranks hold the value; it is one value, and so is its gradient
//   varying    all ranks hold the value, each computes with it separately: its gradient is the sum of theirs
//   partial    each rank holds a summand of the full size; the value is the sum over the ranks
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
  // For a shard only: rank i of the axis holds rows [bounds[i], bounds[i + 1]) of dim. Explicit bounds allow
  // unequal shards and fused projections without new code.
  std::vector<int64_t> bounds;
  // Whether the split holds only while nothing computes with the tensor (FSDP): compute sees all ranks'
  // pieces concatenated. Such placements come last.
  bool at_rest = false;

  static Placement shard(std::string axis, int dim, std::vector<int64_t> bounds);
  static Placement replicate(std::string axis);
  static Placement partial(std::string axis);
  static Placement varying(std::string axis);
  friend bool operator==(const Placement&, const Placement&) = default;
};

using Layout = std::vector<Placement>;

// Splits n rows over W ranks as FSDP does, in pieces of ceil(n / W): n = 5, W = 4 gives 0 2 4 5 5.
std::vector<int64_t> ceil_bounds(int64_t n, int64_t ranks);
// Splits n rows over P ranks evenly: ranks with index < n % P get one row more. n = 5, P = 4 gives 0 2 3 4 5.
std::vector<int64_t> balanced_bounds(int64_t n, int64_t ranks);

// A part of a tensor: rows [first[d], first[d] + shape[d]) of every dim d.
struct Box {
  std::array<int64_t, kMaxDims> first{};
  Shape shape;
  int64_t last(int d) const { return first[static_cast<size_t>(d)] + shape[d]; }
};
Box whole_box(const Shape& shape);

Tensor slice(const Tensor& tensor, const Box& box);  // Returns a view of the box.

// Returns the box that a rank owns of a tensor of shape `global`. place[i] is the rank's index on the axis of
// placement i.
Box local_box(const Layout& layout, const Shape& global, std::span<const int> place);
// Returns the box that compute sees: like local_box, but without the placements at rest.
Box compute_box(const Layout& layout, const Shape& global, std::span<const int> place);

// Returns the placement over `axis`, or over a product that has it as a factor, or null if there is none.
const Placement* find_axis(const Layout& layout, const std::string& axis);
// Returns all axes that split the tensor, joined by '+' in the order of the layout, or "" if none does.
std::string shard_axes(const Layout& layout);
// Checks a layout. INVALID_ARGUMENT: an axis is used twice, the tensor does not have a placement's dim,
// bounds do not rise from 0 to the rows that this rank's outer splits leave, or a placement that compute sees
// follows one at rest.
void check(const Layout& layout, const Shape& global, std::span<const int> place, const std::string& name);

// Calls run(global, local, count), in order, for the longest runs of elements that are contiguous both in the
// row-major tensor of shape `global` (starting at element `global`) and in the row-major box (starting at
// element `local`).
template <typename Run>
void for_each_run(const Shape& global, const Box& box, Run&& run) {
  if (box.shape.count() == 0) return;
  int split = global.rank();  // the box spans this dim and all later ones
  while (split > 0 && box.shape[split - 1] == global[split - 1]) --split;
  const int rows = std::max(split - 1, 0);  // the loop steps through the rows of the dims before it
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

// Returns text such as "dp_shard: Shard(0), tp: Shard(1)", or "replicated" for an empty layout.
std::string describe(const Layout& layout);

}  // namespace gangway
