// What NCCL computes: items folded in the order of the ranks, in the type that a GPU would sum them in.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>

#include <nccl.h>

namespace gpu_emulation {

size_t bytes_of(ncclDataType_t type);

// `count` items of each input, which lie anywhere but over the output.
void reduce(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count);

}  // namespace gpu_emulation
