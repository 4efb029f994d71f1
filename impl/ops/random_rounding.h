// Stochastic rounding of an optimizer's states to bf16 and to 8-bit codes: a number between two values that
// can be stored becomes the upper one with a probability that makes the mean right. Rounding to the nearest
// loses every step that is below half the distance of two values, so that an average with a decay near 1
// stands still.
//
// The random bits are a function of a key and of the element's index in the whole tensor, so that every mesh,
// every number of threads and every instruction set has the same ones: element i has word i & 3 of
// philox(key, i >> 2), whose low 16 bits round the state m and whose high 16 bits round the state v.
//
// Thread rule: values.
#pragma once

#include <cstdint>

namespace gangway {

// The element i of a shard has the index first + (i / columns) * stride + i % columns in the whole tensor.
struct RandomRounding {
  uint64_t key = 0;
  int64_t first = 0, columns = 1, stride = 1;
};

constexpr uint32_t kRoundsM = 0, kRoundsV = 16;  // the lowest bit of the 16 that round a state

}  // namespace gangway
