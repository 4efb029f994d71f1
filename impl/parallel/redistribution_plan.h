// Plans how a value changes from one layout to another: a list of moves, each one local slice or one
// collective over an axis of a grid of ranks. A plan is data; it knows no gang and touches no memory.
//
// The table lists the moves over one axis, of which tensor and sequence parallelism consist. The gradient
// takes the opposite way between the conjugate layouts, in which partial and varying are swapped.
//
// | forward        | from -> to           | backward       | known as                                      |
// |----------------|----------------------|----------------|-----------------------------------------------|
// | none           | replicate -> varying | all_reduce     | Megatron copy_to, fairseq2 reduce_on_backward |
// | all_reduce     | partial -> replicate | none           | Megatron reduce_from, fairseq2 reduce         |
// | slice          | replicate -> shard   | all_gather     | scatter_to, fairseq2 scatter                  |
// | all_gather     | shard -> replicate   | slice          | gather_from, fairseq2 gather                  |
// | all_gather     | shard -> varying     | reduce_scatter | DistDL AllGather, sequence parallel, FSDP     |
// | reduce_scatter | partial -> shard     | all_gather     | DistDL ReduceScatter, sequence parallel       |
// | all_reduce     | partial -> varying   | all_reduce     | DistDL AllSumReduce                           |
// | exchange       | shard(a) -> shard(b) | exchange       | Ulysses, experts, DistDL Repartition          |
//
// If one rank holds all rows (bounds 0 n n n), an all_gather becomes a broadcast and a reduce_scatter becomes
// a reduce. Pairs that differ and are in no row are refused, because no collective converts one into the
// other.
//
// Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "tensor/layout.h"

namespace gangway {

// The ranks over which a value is distributed. Ranks are numbered row-major, the last axis fastest.
struct RankGrid {
  struct Axis {
    std::string name;
    int size = 1;
    int index = 0;  // this rank's place on the axis
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
  exchange,  // an all_to_all of pieces
};
const char* name(MoveKind kind) noexcept;

constexpr int kWholeGrid = -1;  // a move over all axes at once

// One step of a plan. The collective works on packed boxes, one after the other. `sent` are boxes of the
// input: one for each rank if each rank receives another part, else one. `got` are boxes of the output: one
// for each rank if each rank contributes another part, else one.
struct Move {
  MoveKind kind;
  int axis;  // index of the axis in the grid, or kWholeGrid
  Shape before, after;
  std::vector<Box> sent, got;
  int root = -1;       // of a broadcast or a reduce
  bool equal = false;  // exchange: all pairs exchange equally many elements, and every rank can tell
};

struct RedistributionPlan {
  Shape before, after;
  std::vector<Move> moves;   // empty: the value does not change
  std::string text() const;  // "reduce_scatter 0, exchange grid"; the numbers are axes of the grid
};

// The layout of the gradient of a value that has this layout.
Layout conjugate(Layout layout);

// Throws the errors of a pair of layouts that do not depend on the shape. INVALID_ARGUMENT: an axis that is
// not in the grid or is listed twice; bounds whose number is not the number of ranks plus one, or that do not
// ascend from 0; a placement at rest; a pair of placements that no collective connects.
void check_redistribution(const Layout& from, const Layout& to, const RankGrid& grid);

// Plans the way of a value whose tensor on this rank has the shape `local` under `from`. A shard without
// bounds has equal pieces. INVALID_ARGUMENT, with the numbers: a dim that the tensor does not have, that the
// ranks do not divide, or that the bounds do not fit. NOT_SUPPORTED: nested splits that would need more than
// one move over one axis.
RedistributionPlan plan_redistribution(const Layout& from, const Layout& to, const RankGrid& grid,
                                       const Shape& local);

// Plans an all_to_all. from[r] and to[r] are the boxes of rank r before and after, in coordinates of the
// value. Every element of the value lies in exactly one box of `from` and in exactly one box of `to`.
Move plan_exchange(const std::vector<Box>& from, const std::vector<Box>& to, int rank, int axis);

}  // namespace gangway
