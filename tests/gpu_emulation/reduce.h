// Reduces as NCCL does: in the order of the ranks, in the type in which a GPU would sum.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>

#include <nccl.h>

namespace gpu_emulation {

size_t bytes_of(ncclDataType_t type);

// Reduces `count` items of each input. No input may overlap the output.
void reduce(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count);

}  // namespace gpu_emulation
