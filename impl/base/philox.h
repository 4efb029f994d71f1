// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011). They are pure functions of (key, counter), so any rank can make any element of a tensor without
// making the others.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gangway {

using PhiloxBlock = std::array<uint32_t, 4>;

// Runs ten rounds. The 64-bit key is used as (low word, high word); the counter is {low, high, 0, 0} of
// `index`.
PhiloxBlock philox(uint64_t key, uint64_t index);

// Returns the key of a parameter's initial values: seed + XXH64(name, 0) mod 2^64.
uint64_t philox_key(uint64_t seed, std::string_view name);

// Returns element i of the tensor with this key: lane i & 1 of block i >> 1. Four u32 make two 53-bit
// uniforms, u1 in (0, 1] and u2 in [0, 1), and Box-Muller makes two normals of them. The arithmetic is scalar
// f64 with our own log, sin and cos (philox_math.h), so the bits do not depend on the C library or the
// processor. Tests compare them with golden values.
double philox_normal(uint64_t key, uint64_t i);

// Writes elements [first, first + count) times `deviation` to out, with the same bits as philox_normal.
void philox_normals(uint64_t key, uint64_t first, size_t count, double deviation, double* out);

// Returns element i of the stream of uniforms with this key, in [0, 1) with 53 bits: lane i & 1 of block i >>
// 1.
double philox_uniform(uint64_t key, uint64_t i);

}  // namespace gangway
