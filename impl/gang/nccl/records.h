// One record as calls of NCCL, between ncclGroupStart and ncclGroupEnd.
// Thread rule: as NCCL's communicator, one thread at a time.
#pragma once

#include "gang/collective.h"
#include "gang/nccl/api.h"

namespace gangway::nccl {

struct Place {
  ncclComm_t comm;
  cudaStream_t stream;
  int rank, size;
};

// `c` has no counts but for all_to_all, and does not accumulate. `dummy`: one byte of the device's for barriers.
void launch(const Place& place, const Collective& c, void* dummy);

}  // namespace gangway::nccl
