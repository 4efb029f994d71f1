// Turns one record into calls of NCCL.
//
// Thread rule: one thread at a time, as for NCCL's communicator.
#pragma once

#include "gang/collective.h"
#include "gang/nccl/api.h"

namespace gangway::nccl {

struct Place {
  ncclComm_t comm;
  cudaStream_t stream;
  int rank, size;
};

// Call it between ncclGroupStart and ncclGroupEnd. `c` has no counts per rank and does not accumulate.
// `dummy` is one byte of device memory, for barriers.
void launch(const Place& place, const Collective& c, void* dummy);

}  // namespace gangway::nccl
