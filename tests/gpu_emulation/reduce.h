// Reduces the ranks' items, in one of two ways. Which of them NCCL's algorithms resemble depends on the
// links, the size and the version, so code must not rely on either:
// - a fold in the order of the ranks, in f32 for 16-bit types, rounded once;
// - a ring, which rounds to the type at every hop. The order begins at the rank after the one that gets the
//   items.
//   A mean divides each rank's item before it is added.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>

#include <nccl.h>

namespace gpu_emulation {

size_t bytes_of(ncclDataType_t type);

// Reduce `count` items of each input. No input may overlap the output. The inputs of a ring are in its order.
void reduce(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count);
void reduce_in_ring(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out,
                    size_t count);

}  // namespace gpu_emulation
