// The arithmetic of philox.h as constexpr functions, for the host and for kernels. Every operation is a plain
// IEEE f64 or integer operation in a fixed order (compiled without contraction), so that another runtime can
// repeat it bit for bit. ABI.md publishes the same formulas.
//
// Thread rule: pure functions.
#pragma once

#include <bit>

#include "base/philox.h"

namespace gangway::philox_math {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;

constexpr PhiloxBlock block_of(uint64_t key, uint64_t index) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

// The 53 bits of a block's first or second lane. It selects words instead of indexing by the lane, because a
// kernel would keep an indexed block in memory.
constexpr uint64_t lane_bits(const PhiloxBlock& block, bool second) {
  const uint64_t low = second ? block[2] : block[0], high = second ? block[3] : block[1];
  return (high << 32 | low) >> 11;
}
// The same number as a uniform, in [0, 1).
constexpr double lane_uniform(const PhiloxBlock& block, bool second) {
  return static_cast<double>(lane_bits(block, second)) * 0x1p-53;
}

struct Uniforms {
  double first;   // in (0, 1]
  double second;  // in [0, 1)
};

constexpr Uniforms uniforms(uint64_t key, uint64_t block) {
  const PhiloxBlock r = block_of(key, block);
  return {static_cast<double>(lane_bits(r, false) + 1) * 0x1p-53, lane_uniform(r, true)};
}

// ln(x) for x in (0, 1]: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), ln(m) = 2 (s +
// s^3/3 + ... + s^23/23). ln 2 is split in two so that e * high is exact.
constexpr double natural_log(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m = m * 0.5;
    e = e + 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  for (int k = 21; k >= 1; k -= 2) p = p * z + 1.0 / static_cast<double>(k);
  return static_cast<double>(e) * kLn2High + (2.0 * s * p + static_cast<double>(e) * kLn2Low);
}

struct SinCos {
  double sine, cosine;
};

// sin and cos of 2 pi t for t in [0, 1): reduced to the nearest quarter turn q, then Taylor series on [-pi/4,
// pi/4].
constexpr SinCos turn(double t) {
  const int q = static_cast<int>(t * 4.0 + 0.5);
  const double x = (t - static_cast<double>(q) * 0.25) * 0x1.921fb54442d18p+2;
  const double z = x * x;
  double s = 1.0;
  for (int k = 19; k >= 3; k -= 2) s = 1.0 - s * z / static_cast<double>(k * (k - 1));
  s = s * x;
  double c = 1.0;
  for (int k = 20; k >= 2; k -= 2) c = 1.0 - c * z / static_cast<double>(k * (k - 1));
  switch (q & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

// Two normals by Box-Muller, before the square root is taken: the squared radius, and the unit vector that
// the radius scales.
struct Polar {
  double radius_squared, x, y;
};
constexpr Polar polar(uint64_t key, uint64_t block) {
  const Uniforms u = uniforms(key, block);
  const SinCos a = turn(u.second);
  return {-2.0 * natural_log(u.first), a.cosine, a.sine};
}

}  // namespace gangway::philox_math
