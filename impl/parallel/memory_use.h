// The memory, in bytes, that one rank uses for a model.
//
// Thread rule: values.
#pragma once

#include <cstdint>

namespace gangway {

// The numbers are exact: the same code counts the same bytes on the meta device over a fake gang.
struct MemoryUse {
  uint64_t master = 0;       // private f32 or f64 shards
  uint64_t copies = 0;       // private shards in the compute dtype
  uint64_t region_rows = 0;  // own rows in shared regions
  uint64_t gradient_shards = 0;
  uint64_t gathered = 0;        // buffers of all-gathered weights (0 on one host)
  uint64_t full_gradients = 0;  // buffers of unsharded gradients
  uint64_t optimizer = 0;       // state of the optimizers that called count_optimizer
  uint64_t activations = 0;     // peak bytes of all frames, without those on the host
  uint64_t gradients = 0;       // peak bytes of the frames' stacks of gradients
  uint64_t temporaries = 0;     // peak bytes of temporaries, pipeline messages and tables that modules keep
  // State that cpu_offload keeps on the host, peak bytes of activations there, and copies of checkpoints.
  uint64_t host = 0;
  uint64_t total() const;  // all of them on the device
};

}  // namespace gangway
