// Data movement over partitions (mesh/partition.h), as modules. Forward moves a tensor; backward moves its
// gradient by the adjoint operation. The inner product is the sum over all workers, so a tensor that several
// workers hold counts once for each of them.
//
// | kind           | forward                                       | backward       | layouts               |
// |----------------|-----------------------------------------------|----------------|-----------------------|
// | all_gather     | joins pieces along one dim on every worker    | reduce_scatter | shard -> varying      |
// | reduce_scatter | sums; each worker keeps its balanced piece of | all_gather     | partial -> shard      |
// |                | one dim                                       |                |                       |
// | all_sum_reduce | sums over some dims, on every worker          | the same       | partial -> varying    |
// | broadcast      | copies from each worker of the source to      | sum_reduce     | one holder -> varying |
// |                | workers of the target                         |                |                       |
// | sum_reduce     | sums tensors of workers of the source on each | broadcast      | partial -> one holder |
// |                | worker of the target                          |                |                       |
// | repartition    | cuts over the target a value that was cut     | the reverse    | shard -> shard        |
// |                | over the source                               |                |                       |
//
// In all_gather, reduce_scatter and repartition, dim d of the partition cuts dim d of the tensor. Pieces may
// differ in size and may be empty. Broadcast follows NumPy's rule: the shapes of the partitions align at the
// last dim, and each dim of the source equals that of the target or is 1.
//
// A rank that is not a worker of the source passes a tensor of zero elements. A rank that gets nothing has a
// result of shape [0], or with preserve_batch [batch, 0] for an input [batch, ...]. The result is never the
// input itself.
//
// Creation, forward and backward are collective over the base gang, also for ranks that are no workers. All
// ranks compare shapes first and refuse together.
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
  // The dims of the partition along which workers exchange, or those along which they do not. all_gather and
  // reduce_scatter exchange along at most one dim, all_sum_reduce along any number; over no dims each worker
  // gets a copy of its own tensor. The other kinds take no axes.
  std::optional<std::vector<int>> axes, axes_keep;
  double backward_scale = 1;  // a factor of the gradient
  bool preserve_batch = false;
  // broadcast and sum_reduce: the dims of the partition in reverse order.
  bool transpose_source = false, transpose_target = false;
};

// Only broadcast, sum_reduce and repartition have a `target`. INVALID_ARGUMENT: axes that the kind does not
// take or that are wrong, a target that is missing or not wanted, shapes that do not fit, or a partition
// without workers (a sub-topology on an inactive rank does not count as one). MISMATCH: ranks ask for
// different movements.
ModulePtr make_movement(Movement movement, const Partition& source, const Partition* target,
                        const MovementOptions& options);

}  // namespace gangway
