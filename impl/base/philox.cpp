#include "base/philox.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "base/philox_math.h"

namespace gangway {
namespace {

struct Normals {
  double even, odd;
};

Normals normals(uint64_t key, uint64_t block) {
  const philox_math::Polar p = philox_math::polar(key, block);
  const double radius = std::sqrt(p.radius_squared);
  return {radius * p.x, radius * p.y};
}

}  // namespace

PhiloxBlock philox(uint64_t key, uint64_t index) { return philox_math::block_of(key, index); }

uint64_t philox_key(uint64_t seed, std::string_view name) {
  return seed + XXH64(name.data(), name.size(), 0);
}

double philox_normal(uint64_t key, uint64_t i) {
  const Normals n = normals(key, i >> 1);
  return (i & 1) != 0 ? n.odd : n.even;
}

void philox_normals(uint64_t key, uint64_t first, size_t count, double deviation, double* out) {
  size_t done = 0;
  if ((first & 1) != 0 && count > 0) out[done++] = normals(key, first >> 1).odd * deviation;
  for (; done + 1 < count; done += 2) {
    const Normals n = normals(key, (first + done) >> 1);
    out[done] = n.even * deviation;
    out[done + 1] = n.odd * deviation;
  }
  if (done < count) out[done] = normals(key, (first + done) >> 1).even * deviation;
}

double philox_uniform(uint64_t key, uint64_t i) {
  return philox_math::lane_uniform(philox_math::block_of(key, i >> 1), (i & 1) != 0);
}

}  // namespace gangway
