#include "ops/cpu/kernels/norm_kernels.h"

#include "ops/cpu/kernels/row_sums.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

// Both passes use the same operations, so that a recomputed y has the same bits.
template <typename V>
GW_SIMD V output(V s, V rstd, V weight) {
  return s * rstd * weight;
}

// y[d] = s[d] * rstd * (offset + weight[d]) with s = x + residual.
template <typename T>
void forward(const NormForward& p, int64_t first, int64_t last) {
  using S = Scalar<T>;
  const int64_t width = p.width;
  const T* weight = static_cast<const T*>(p.weight);
  const Vec<T> offset = set(static_cast<S>(p.offset));
  for (int64_t t = first; t < last; ++t) {
    const int64_t at = t * width;
    const T* x = static_cast<const T*>(p.x) + at;
    const T* residual = p.residual != nullptr ? static_cast<const T*>(p.residual) + at : nullptr;
    T* sum_out = p.residual != nullptr ? static_cast<T*>(p.sum) + at : nullptr;
    const S squares = p.squares != nullptr
                          ? static_cast<const S*>(p.squares)[t]
                          : add_residual<T>(x, residual, sum_out, width, [](Vec<T> s, Vec<T> so_far) GW_BODY {
                              return fma(s, s, so_far);
                            });
    const S rstd = S(1) / sqrt(squares / static_cast<S>(p.whole_width) + static_cast<S>(p.eps));
    static_cast<S*>(p.rstd)[t] = rstd;
    const T* s_D = residual != nullptr ? sum_out : x;
    T* y = static_cast<T*>(p.y) + at;
    for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY {
      store(y + d, output(load(s_D + d, n), set(rstd), load(weight + d, n) + offset), n);
    });
  }
}

// With f = y * (offset + weight), or y: out[t] = sum of x f.
template <typename T>
void row_dot(const RowDot& p, int64_t first, int64_t last) {
  using S = Scalar<T>;
  const int64_t width = p.width;
  const T* weight = static_cast<const T*>(p.weight);
  const Vec<T> offset = set(static_cast<S>(p.offset));
  for (int64_t t = first; t < last; ++t) {
    const T *x = static_cast<const T*>(p.x) + t * width, *y = static_cast<const T*>(p.y) + t * width;
    static_cast<S*>(p.out)[t] = sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
      Vec<T> f = load(y + d, n);
      if (weight != nullptr) f = f * (load(weight + d, n) + offset);
      return fma(f, load(x + d, n), so_far);
    });
  }
}

// With g = dy * (offset + weight): dx = rstd * (g - x * rstd^2 * mean(g x)) + dsum. y, if present, may be dy
// in place.
template <typename T>
void dx_row(const NormBackward& p, int64_t t) {
  using S = Scalar<T>;
  const int64_t width = p.width, at = t * width;
  const T *dy = static_cast<const T*>(p.dy) + at, *x = static_cast<const T*>(p.x) + at;
  const T* weight = static_cast<const T*>(p.weight);
  const T* dsum = p.dsum != nullptr ? static_cast<const T*>(p.dsum) + at : nullptr;
  T* dx = static_cast<T*>(p.dx) + at;
  T* y = p.y != nullptr ? static_cast<T*>(p.y) + at : nullptr;
  const S rstd = static_cast<const S*>(p.rstd)[t];
  const Vec<T> offset = set(static_cast<S>(p.offset));
  const S dot = p.dots != nullptr
                    ? static_cast<const S*>(p.dots)[t]
                    : sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
                        return fma(load(dy + d, n) * (load(weight + d, n) + offset), load(x + d, n), so_far);
                      });
  const S c = dot / static_cast<S>(p.whole_width) * rstd * rstd * rstd;
  for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY {
    const Vec<T> w = load(weight + d, n) + offset, s = load(x + d, n);
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
    for (int64_t t = t0; t < t1; ++t) dx_row<T>(p, t);
  }
}

}  // namespace

extern const NormKernels norm_kernels = {
    {forward<float>, forward<bf16_t>, forward<f16_t>, forward<double>},
    {backward<float>, backward<bf16_t>, backward<f16_t>, backward<double>},
    {row_dot<float>, row_dot<bf16_t>, row_dot<f16_t>, row_dot<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
