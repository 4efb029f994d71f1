#include "ops/cpu/kernels/dropout_kernels.h"

#include "ops/cpu/kernels/random_rounding.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

constexpr int64_t kElements = 256;  // whose random words are made at a time

// Writes the factors of elements [first, first + n) of the whole batch. Element i has words 2 i and 2 i + 1
// of the stream (philox_uniform in base/philox.h).
template <typename S>
void make_factors(const DropoutRows& p, int64_t first, int64_t n, S* factors) {
  uint32_t words[2 * kElements];
  random_words(p.key, 2 * first, 2 * n, words);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t uniform = (static_cast<uint64_t>(words[2 * i + 1]) << 32 | words[2 * i]) >> 11;
    factors[i] = uniform >= p.threshold ? static_cast<S>(p.scale) : S(0);
  }
}

// What is dropped becomes 0 also where x is not finite.
template <typename T>
void apply(const DropoutRows& p, int64_t first, int64_t last) {
  Scalar<T> factors[kElements];
  for (int64_t t = first; t < last; ++t) {
    const int64_t row = p.rows != nullptr ? p.rows[t] : p.first_row + t;
    for (int64_t d0 = 0; d0 < p.width; d0 += kElements) {
      const int64_t n = p.width - d0 < kElements ? p.width - d0 : kElements;
      make_factors(p, row * p.columns + p.first_column + d0, n, factors);
      const T* x = static_cast<const T*>(p.x) + t * p.width + d0;
      T* y = static_cast<T*>(p.y) + t * p.width + d0;
      for_lanes<T>(n, [&](int64_t i, auto part) GW_BODY {
        const Vec<T> factor = load(factors + i, part);
        store(y + i, select(factor > Vec<T>{}, load(x + i, part) * factor, Vec<T>{}), part);
      });
    }
  }
}

}  // namespace

extern const DropoutKernels dropout_kernels = {{apply<float>, apply<bf16_t>, apply<f16_t>, apply<double>}};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
