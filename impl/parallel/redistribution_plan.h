// How a value gets from one layout to another, as data: a few moves, each one collective over one axis of a grid of
// ranks. Knows no gang and touches no memory.
//
// The named cases over one axis, which tensor and sequence parallelism are made of. Gradients go the other way, between
// the conjugate layouts: partial and varying change places.
//
// | forward        | from -> to             | backward       | known as                                     |
// |----------------|------------------------|----------------|----------------------------------------------|
// | none           | replicate -> varying   | all_reduce     | Megatron copy_to, fairseq2 reduce_on_backward |
// | all_reduce     | partial -> replicate   | none           | Megatron reduce_from, fairseq2 reduce        |
// | slice          | replicate -> shard     | all_gather     | scatter_to, fairseq2 scatter                 |
// | all_gather     | shard -> replicate     | slice          | gather_from, fairseq2 gather                 |
// | all_gather     | shard -> varying       | reduce_scatter | DistDL AllGather, sequence parallel, FSDP    |
// | reduce_scatter | partial -> shard       | all_gather     | DistDL ReduceScatter, sequence parallel      |
// | all_reduce     | partial -> varying     | all_reduce     | DistDL AllSumReduce                          |
// | exchange       | shard(a) -> shard(b)   | exchange       | Ulysses, experts, DistDL Repartition         |
//
// A piece that one rank holds alone (bounds 0 n n n) makes a broadcast of an all_gather and a reduce of a
// reduce_scatter. Pairs that are in no row and are not equal are refused: no collective makes one of the other.
//
// Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "tensor/layout.h"

namespace gangway {

// The ranks that a value is spread over. They are counted row-major, the last axis fastest.
struct RankGrid {
  struct Axis {
    std::string name;
    int size = 1;
    int index = 0;  // this rank's
  };
  std::vector<Axis> axes;
};

enum class MoveKind : uint8_t {
  slice,
  all_gather,
  broadcast,
  reduce_scatter,
  reduce,
  all_reduce,
  exchange,  // each rank gives every other one its part: all_to_all
};
const char* name(MoveKind kind) noexcept;

constexpr int kWholeGrid = -1;

// What travels lies packed, one box after the other. `sent` are boxes of the tensor before, one for each rank where
// each gets another part, else one; `got` are boxes of the tensor after, one for each rank where each gives another part.
struct Move {
  MoveKind kind;
  int axis;  // of the grid, or kWholeGrid
  Shape before, after;
  std::vector<Box> sent, got;
  int root = -1;       // broadcast, reduce
  bool equal = false;  // exchange: all pairs of ranks exchange equally much; it is known to all of them
};

struct RedistributionPlan {
  Shape before, after;
  std::vector<Move> moves;   // none: the value stays as it is
  std::string text() const;  // "reduce_scatter 0, exchange grid"; the numbers are axes of the grid
};

// Placement of the gradient of a value.
Layout conjugate(Layout layout);

// Throws what is wrong with the pair for every shape. INVALID_ARGUMENT: an axis that the grid has not or that is listed
// twice, bounds that are not one more than the axis has ranks or do not rise from 0, a placement at rest, a pair of
// placements that no collective connects.
void check_redistribution(const Layout& from, const Layout& to, const RankGrid& grid);

// `local`: this rank's tensor under `from`. A shard without bounds is one of equal pieces, of whatever size the value
// has. INVALID_ARGUMENT: a dim that the tensor has not, that does not divide, or that the bounds do not fit, with the
// numbers. NOT_SUPPORTED: several axes in an order that would take more than one move for one of them.
RedistributionPlan plan_redistribution(const Layout& from, const Layout& to, const RankGrid& grid,
                                       const Shape& local);

// Every element of the value is in one box of `from`, and in one of `to`; boxes[r] is rank r's, in the value's own
// coordinates. Counts are those of an all_to_all.
Move plan_exchange(const std::vector<Box>& from, const std::vector<Box>& to, int rank, int axis);

}  // namespace gangway
