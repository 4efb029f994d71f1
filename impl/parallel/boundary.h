// A boundary between two distributions of the same value: a module whose forward is one collective and whose
// backward is its conjugate. The one table of pairs; tensor and sequence parallelism are which rows stand
// where.
//
// Backward starts its collective, drains pending weight tasks while it travels, then waits.
//
// Thread rule: that of its module.
#pragma once

#include <memory>

#include "gang/gang.h"
#include "nn/module.h"

namespace gangway {

// forward | backward
enum class BoundaryKind : uint8_t {
  copy_all_reduce,            // replicated -> varying
  all_reduce_copy,            // partial -> replicated
  all_gather_reduce_scatter,  // sharded -> varying
  reduce_scatter_all_gather,  // partial -> sharded
  all_gather_slice,           // sharded -> replicated
  slice_all_gather,           // replicated -> sharded
  all_reduce_all_reduce,      // varying -> varying
  all_to_all_all_to_all,      // sharded on one dim -> on another
};
const char* name(BoundaryKind kind) noexcept;

// `dim`: the dimension that is gathered, scattered or sliced; all_to_all: gathered `dim`, split `other_dim`.
// A dim that the gang's size does not divide is INVALID_ARGUMENT when it runs. One input, one output.
ModulePtr make_boundary(BoundaryKind kind, GangPtr gang, Channel channel, int dim = 0, int other_dim = 1);

}  // namespace gangway
