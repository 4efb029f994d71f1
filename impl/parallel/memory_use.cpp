#include "parallel/memory_use.h"

namespace gangway {

uint64_t MemoryUse::total() const {
  return master + copies + region_rows + gradient_shards + gathered + full_gradients + optimizer +
         activations + gradients + temporaries;
}

}  // namespace gangway
