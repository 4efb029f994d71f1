#include "data/permutation.h"

#include "base/philox.h"

namespace gangway::data {
namespace {

constexpr uint64_t kRounds = 8;
constexpr int kMostHalfBits = 32;

}  // namespace

Permutation::Permutation(uint64_t count, uint64_t key) : count_(count), key_(key) {
  while (half_bits_ < kMostHalfBits && count > uint64_t{1} << (2 * half_bits_)) ++half_bits_;
}

uint64_t Permutation::operator()(uint64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (philox(key_, round << 32 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    i = left << half_bits_ | right;
  } while (i >= count_);
  return i;
}

uint64_t derived_key(uint64_t key, uint64_t part) {
  const PhiloxBlock block = philox(key, part);
  return static_cast<uint64_t>(block[1]) << 32 | block[0];
}

}  // namespace gangway::data
