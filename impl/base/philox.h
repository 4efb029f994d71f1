// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
// Pure functions of (key, counter), so any rank can make any element of a tensor without making the others.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gangway {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds. The 64-bit key is (low word, high word); the counter is {low, high, 0, 0} of `index`.
PhiloxBlock philox(uint64_t key, uint64_t index);

// Key of a parameter's initial values: seed + XXH64(name, 0) mod 2^64.
uint64_t philox_key(uint64_t seed, std::string_view name);

// Element i of the tensor with this key: lane i & 1 of block i >> 1. Four u32 make two 53-bit uniforms
// u1 in (0, 1], u2 in [0, 1); Box-Muller makes two normals. Scalar f64 with our own log, sin, cos (philox.cpp), so the
// bits do not depend on the C library or the processor; golden values freeze them.
double philox_normal(uint64_t key, uint64_t i);

// Elements [first, first + count) times `deviation`, into out. Same bits as philox_normal one by one.
void philox_normals(uint64_t key, uint64_t first, size_t count, double deviation, double* out);

// Uniform in [0, 1) with 53 bits: element i of the stream with this key (lane i & 1 of block i >> 1).
double philox_uniform(uint64_t key, uint64_t i);

}  // namespace gangway
