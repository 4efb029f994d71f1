#include "ops/cpu/kernels/norm_kernels.h"

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

// Sums over a row what body(d, Full{} or Part{n}, sum so far) adds. It uses four vectors of sums, since a
// single one would wait for the latency of each addition.
template <typename T, typename Body>
GW_SIMD Scalar<T> sum_lanes(int64_t width, Body&& body) {
  constexpr int64_t step = Compute<T>::kLanes;
  Vec<T> a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * step <= width; i += 4 * step) {
    a = body(i, Full{}, a);
    b = body(i + step, Full{}, b);
    c = body(i + 2 * step, Full{}, c);
    d = body(i + 3 * step, Full{}, d);
  }
  for (; i + step <= width; i += step) a = body(i, Full{}, a);
  if (i < width) b = body(i, Part{static_cast<int>(width - i)}, b);
  return sum((a + b) + (c + d));
}

// Both passes use the same operations, so that a recomputed y has the same bits.
template <typename V>
GW_SIMD V output(V s, V rstd, V weight) {
  return s * rstd * weight;
}

// y[d] = s[d] * rstd * weight[d] with s = x + residual. s is rounded to T first, so that a later pass over
// the stored sum gives the same bits.
template <typename T>
void forward_row(const T* x, const T* residual, const T* weight, T* y, T* sum_out, Scalar<T>* rstd,
                 int64_t width, Scalar<T> eps) {
  using S = Scalar<T>;
  const S squares = sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
    Vec<T> s = load(x + d, n);
    if (residual != nullptr) {
      s = rounded<T>(s + load(residual + d, n));
      store(sum_out + d, s, n);
    }
    return fma(s, s, so_far);
  });
  const S mean = squares / static_cast<S>(width);
  const S r = S(1) / sqrt(mean + eps);
  *rstd = r;
  const T* s_D = residual != nullptr ? sum_out : x;
  for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY {
    store(y + d, output(load(s_D + d, n), set(r), load(weight + d, n)), n);
  });
}

template <typename T>
void forward(const NormForward& p, int64_t first, int64_t last) {
  const int64_t width = p.width;
  for (int64_t t = first; t < last; ++t) {
    const int64_t at = t * width;
    const T* residual = p.residual != nullptr ? static_cast<const T*>(p.residual) + at : nullptr;
    T* sum_out = p.residual != nullptr ? static_cast<T*>(p.sum) + at : nullptr;
    forward_row<T>(static_cast<const T*>(p.x) + at, residual, static_cast<const T*>(p.weight),
                   static_cast<T*>(p.y) + at, sum_out, static_cast<Scalar<T>*>(p.rstd) + t, width,
                   static_cast<Scalar<T>>(p.eps));
  }
}

// With g = dy * weight: dx = rstd * (g - x * rstd^2 * mean(g x)) + dsum. y, if present, may be dy in place.
template <typename T>
void dx_row(const T* dy, const T* x, const T* weight, Scalar<T> rstd, const T* dsum, T* dx, T* y,
            int64_t width) {
  using S = Scalar<T>;
  const S dot = sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
    return fma(load(dy + d, n) * load(weight + d, n), load(x + d, n), so_far);
  });
  const S c = dot / static_cast<S>(width) * rstd * rstd * rstd;
  for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY {
    const Vec<T> w = load(weight + d, n), s = load(x + d, n);
    Vec<T> v = load(dy + d, n) * w * set(rstd);
    v = fma(s, set(-c), v);
    if (dsum != nullptr) v = v + load(dsum + d, n);
    if (y != nullptr) store(y + d, output(s, set(rstd), w), n);
    store(dx + d, v, n);
  });
}

// dweight[d] += sum over rows of dy * x * rstd, in the order of the rows, with four rows in a pass.
template <typename T>
void dweight_rows(const T* dy, const T* x, const Scalar<T>* rstd, Scalar<T>* dweight, int64_t rows,
                  int64_t width) {
  using S = Scalar<T>;
  int64_t t = 0;
  for (; t + 4 <= rows; t += 4)
    for_lanes<S>(width, [&](int64_t d, auto n) GW_BODY {
      Vec<T> w = load(dweight + d, n);
      for (int64_t u = t; u < t + 4; ++u)
        w = fma(load(dy + u * width + d, n) * load(x + u * width + d, n), set(rstd[u]), w);
      store(dweight + d, w, n);
    });
  for (; t < rows; ++t)
    for_lanes<S>(width, [&](int64_t d, auto n) GW_BODY {
      const Vec<T> product = load(dy + t * width + d, n) * load(x + t * width + d, n);
      store(dweight + d, fma(product, set(rstd[t]), load(dweight + d, n)), n);
    });
}

template <typename T>
void backward(const NormBackward& p, void* dweight, int64_t first, int64_t last) {
  const int64_t width = p.width;
  const T *dy = static_cast<const T*>(p.dy), *x = static_cast<const T*>(p.x);
  const auto* rstd = static_cast<const Scalar<T>*>(p.rstd);
  // dweight is computed for a small group of rows at a time, so that dx finds the group's dy and x in the
  // cache. It comes before dx and y, which may overwrite dy.
  constexpr int64_t kGroup = 8;
  for (int64_t t0 = first; t0 < last; t0 += kGroup) {
    const int64_t t1 = t0 + kGroup < last ? t0 + kGroup : last;
    if (dweight != nullptr)
      dweight_rows<T>(dy + t0 * width, x + t0 * width, rstd + t0, static_cast<Scalar<T>*>(dweight), t1 - t0,
                      width);
    if (p.dx == nullptr) continue;
    for (int64_t t = t0; t < t1; ++t) {
      const T* dsum = p.dsum != nullptr ? static_cast<const T*>(p.dsum) + t * width : nullptr;
      T* y = p.y != nullptr ? static_cast<T*>(p.y) + t * width : nullptr;
      dx_row<T>(dy + t * width, x + t * width, static_cast<const T*>(p.weight), rstd[t], dsum,
                static_cast<T*>(p.dx) + t * width, y, width);
    }
  }
}

}  // namespace

extern const NormKernels norm_kernels = {
    {forward<float>, forward<bf16_t>, forward<f16_t>, forward<double>},
    {backward<float>, backward<bf16_t>, backward<f16_t>, backward<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
