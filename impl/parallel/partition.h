// Data movement over partitions (mesh/partition.h), as modules: forward moves a tensor, backward its gradient by the
// adjoint. The inner product is the sum over all workers, so a tensor that several workers hold counts once for each.
//
// | kind           | forward                                               | backward           | layouts                  |
// |----------------|-------------------------------------------------------|--------------------|--------------------------|
// | all_gather     | joins the pieces along one dim on every worker        | reduce_scatter     | shard -> varying         |
// | reduce_scatter | sums, each worker keeps its balanced piece of one dim | all_gather         | partial -> shard         |
// | all_sum_reduce | sums over some dims, on every worker                  | the same           | partial -> varying       |
// | broadcast      | from each worker of a source to those of a target     | sum_reduce         | one holder -> varying    |
// | sum_reduce     | sums those of a source on a worker of the target      | broadcast          | partial -> one holder    |
// | repartition    | a value cut over the source, cut over the target      | the reverse        | shard -> shard           |
//
// Dim d of the partition cuts dim d of the tensor in all_gather, reduce_scatter and repartition; pieces may differ in
// size and be empty. Broadcast follows NumPy's rule: shapes align at the last dim, the source's dim is the target's or 1.
//
// A rank that is no worker passes a tensor of zero elements and gets one: a rank that gets nothing has [0], or
// [batch, 0] of an input [batch, ...] with preserve_batch. The result is never the input itself.
//
// Creation, forward and backward are collective over the base gang, inactive ranks included: all ranks compare shapes
// first and refuse together.
//
// Thread rule: that of a module.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mesh/partition.h"
#include "nn/module.h"

namespace gangway {

enum class Movement : uint8_t {
  all_gather,
  reduce_scatter,
  all_sum_reduce,
  broadcast,
  sum_reduce,
  repartition
};
const char* name(Movement movement) noexcept;

struct MovementOptions {
  // all_gather, reduce_scatter (one dim of the partition), all_sum_reduce (any): the dims along which workers exchange,
  // or those along which they do not.
  std::optional<std::vector<int>> axes, axes_keep;
  double backward_scale = 1;  // what gradients are multiplied by
  bool preserve_batch = false;
  bool transpose_source = false, transpose_target = false;  // broadcast, sum_reduce: dims in reverse order
};

// `target`: of broadcast, sum_reduce and repartition. INVALID_ARGUMENT: axes that the kind does not take or that are
// given wrongly, a target that is missing or not wanted, shapes that do not fit, an empty partition (a sub-topology of
// an inactive rank is none). MISMATCH: ranks ask for different movements.
ModulePtr make_movement(Movement movement, const Partition& source, const Partition* target,
                        const MovementOptions& options);

}  // namespace gangway
