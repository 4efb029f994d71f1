#include "ops/cpu/kernels/rope_kernels.h"

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

template <typename T>
void rotate(const RopeRows& p, int64_t first, int64_t last) {
  using S = Scalar<T>;
  const int64_t half = p.half;
  const Vec<T> sign = set(S(p.inverse ? -1 : 1));
  for (int64_t t = first; t < last; ++t) {
    const int64_t row = t % p.sequence, position = p.positions != nullptr ? p.positions[row] : row;
    const S* cos_row = static_cast<const S*>(p.cos) + position * half;
    const S* sin_row = static_cast<const S*>(p.sin) + position * half;
    for (int64_t h = 0; h < p.heads; ++h) {
      const T* x = static_cast<const T*>(p.x) + t * p.x_stride + h * p.width;
      T* y = static_cast<T*>(p.y) + t * p.y_stride + h * p.width;
      for_lanes<T>(half, [&](int64_t i, auto n) GW_BODY {
        const Vec<T> c = load(cos_row + i, n), s = load(sin_row + i, n) * sign;
        const Vec<T> x1 = load(x + i, n), x2 = load(x + half + i, n);
        store(y + i, x1 * c - x2 * s, n);
        store(y + half + i, x2 * c + x1 * s, n);
      });
      const int64_t rest = p.width - 2 * half;
      if (rest > 0 && x != y)
        __builtin_memcpy(static_cast<void*>(y + 2 * half), x + 2 * half,
                         static_cast<size_t>(rest) * sizeof(T));
    }
  }
}

}  // namespace

extern const RopeKernels rope_kernels = {{rotate<float>, rotate<bf16_t>, rotate<f16_t>, rotate<double>}};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
