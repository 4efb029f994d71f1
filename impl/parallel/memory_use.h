// Bytes that one rank takes for a model.
//
// Thread rule: values.
#pragma once

#include <cstdint>

namespace gangway {

// Exact: equal to what the same code counts on the meta device over a fake gang.
struct MemoryUse {
  uint64_t master = 0;       // private f32 or f64 shards
  uint64_t copies = 0;       // private shards in the compute dtype
  uint64_t region_rows = 0;  // own rows in shared regions
  uint64_t gradient_shards = 0;
  uint64_t gathered = 0;        // buffers of gathered weights (0 on one host)
  uint64_t full_gradients = 0;  // gradient buffers, the root's own, unsharded accumulation
  uint64_t optimizer = 0;       // state of the optimizers that count_optimizer was told of
  uint64_t activations = 0;     // most bytes that a frame held, without those on the host
  uint64_t gradients = 0;       // most bytes of gradient stacks
  uint64_t temporaries = 0;     // and tables that modules keep
  uint64_t host = 0;            // what cpu_offload keeps on the host; most bytes of activations there
  uint64_t total() const;       // on the device
};

}  // namespace gangway
