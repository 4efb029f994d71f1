#include "ops/cpu/kernels/layernorm_kernels.h"

#include "ops/cpu/kernels/row_sums.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

// Both passes use the same operations, so that a recomputed y has the same bits.
template <typename V>
GW_SIMD V output(V s, V mean, V rstd, V weight, V bias) {
  return fma((s - mean) * rstd, weight, bias);
}

// Returns the sum of (s - mean)^2. A partial vector would count -mean in the lanes beyond the row, so the
// tail goes element by element.
template <typename T>
Scalar<T> squares_about(const T* s_D, Scalar<T> mean, int64_t width) {
  constexpr int64_t lanes = Compute<T>::kLanes;
  const int64_t whole = width / lanes * lanes;
  Scalar<T> sum = sum_lanes<T>(whole, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
    const Vec<T> s = load(s_D + d, n) - set(mean);
    return fma(s, s, so_far);
  });
  for (int64_t d = whole; d < width; ++d) {
    const Scalar<T> s = to_scalar(s_D[d]) - mean;
    sum += s * s;
  }
  return sum;
}

template <typename T>
void forward(const LayerNormForward& p, int64_t first, int64_t last) {
  using S = Scalar<T>;
  const int64_t width = p.width;
  const T *weight = static_cast<const T*>(p.weight), *bias = static_cast<const T*>(p.bias);
  for (int64_t t = first; t < last; ++t) {
    const int64_t at = t * width;
    const T* x = static_cast<const T*>(p.x) + at;
    const T* residual = p.residual != nullptr ? static_cast<const T*>(p.residual) + at : nullptr;
    T* sum_out = p.residual != nullptr ? static_cast<T*>(p.sum) + at : nullptr;
    const S total = add_residual<T>(x, residual, sum_out, width,
                                    [](Vec<T> v, Vec<T> so_far) GW_BODY { return so_far + v; });
    const S mean = total / static_cast<S>(width);
    const T* s_D = residual != nullptr ? sum_out : x;
    const S variance = squares_about<T>(s_D, mean, width) / static_cast<S>(width);
    const S rstd = S(1) / sqrt(variance + static_cast<S>(p.eps));
    static_cast<S*>(p.mean)[t] = mean;
    static_cast<S*>(p.rstd)[t] = rstd;
    T* y = static_cast<T*>(p.y) + at;
    for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY {
      store(y + d, output(load(s_D + d, n), set(mean), set(rstd), load(weight + d, n), load(bias + d, n)), n);
    });
  }
}

// With g = dy * weight and z = (x - mean) * rstd: dx = rstd * (g - mean(g) - z * mean(g z)) + dsum. y, if
// present, may be dy in place.
template <typename T>
void dx_row(const LayerNormBackward& p, int64_t t) {
  using S = Scalar<T>;
  const int64_t width = p.width, at = t * width;
  const T *dy = static_cast<const T*>(p.dy) + at, *x = static_cast<const T*>(p.x) + at;
  const T *weight = static_cast<const T*>(p.weight), *bias = static_cast<const T*>(p.bias);
  const T* dsum = p.dsum != nullptr ? static_cast<const T*>(p.dsum) + at : nullptr;
  T* dx = static_cast<T*>(p.dx) + at;
  T* y = p.y != nullptr ? static_cast<T*>(p.y) + at : nullptr;
  const Vec<T> mean = set(static_cast<const S*>(p.mean)[t]), rstd = set(static_cast<const S*>(p.rstd)[t]);
  // g is 0 in the lanes beyond the row, so the sums need no mask.
  const S g_sum = sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
    return fma(load(dy + d, n), load(weight + d, n), so_far);
  });
  const S gz_sum = sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
    return fma(load(dy + d, n) * load(weight + d, n), (load(x + d, n) - mean) * rstd, so_far);
  });
  const Vec<T> g_mean = set(g_sum / static_cast<S>(width)), gz_mean = set(gz_sum / static_cast<S>(width));
  for_lanes<T>(width, [&](int64_t d, auto n) GW_BODY {
    const Vec<T> w = load(weight + d, n), s = load(x + d, n), z = (s - mean) * rstd;
    Vec<T> v = (load(dy + d, n) * w - g_mean - z * gz_mean) * rstd;
    if (dsum != nullptr) v = v + load(dsum + d, n);
    if (y != nullptr) store(y + d, output(s, mean, rstd, w, load(bias + d, n)), n);
    store(dx + d, v, n);
  });
}

// dweight[d] += sum over the rows of dy * z, dbias[d] += sum of dy, in the order of the rows.
template <typename T>
void add_rows(const LayerNormBackward& p, Scalar<T>* dweight, Scalar<T>* dbias, int64_t first, int64_t last) {
  using S = Scalar<T>;
  const int64_t width = p.width;
  const T *dy = static_cast<const T*>(p.dy), *x = static_cast<const T*>(p.x);
  const S *mean = static_cast<const S*>(p.mean), *rstd = static_cast<const S*>(p.rstd);
  for_lanes<S>(width, [&](int64_t d, auto n) GW_BODY {
    Vec<T> w = dweight != nullptr ? load(dweight + d, n) : Vec<T>{};
    Vec<T> b = dbias != nullptr ? load(dbias + d, n) : Vec<T>{};
    for (int64_t t = first; t < last; ++t) {
      const Vec<T> g = load(dy + t * width + d, n);
      w = fma(g, (load(x + t * width + d, n) - set(mean[t])) * set(rstd[t]), w);
      b = b + g;
    }
    if (dweight != nullptr) store(dweight + d, w, n);
    if (dbias != nullptr) store(dbias + d, b, n);
  });
}

template <typename T>
void backward(const LayerNormBackward& p, void* dweight, void* dbias, int64_t first, int64_t last) {
  // The sums of a small group of rows come first, so that dx finds the group's dy and x in the cache, and
  // because dx and y may overwrite dy.
  constexpr int64_t kGroup = 8;
  for (int64_t t0 = first; t0 < last; t0 += kGroup) {
    const int64_t t1 = t0 + kGroup < last ? t0 + kGroup : last;
    if (dweight != nullptr || dbias != nullptr)
      add_rows<T>(p, static_cast<Scalar<T>*>(dweight), static_cast<Scalar<T>*>(dbias), t0, t1);
    if (p.dx == nullptr) continue;
    for (int64_t t = t0; t < t1; ++t) dx_row<T>(p, t);
  }
}

}  // namespace

extern const LayerNormKernels layernorm_kernels = {
    {forward<float>, forward<bf16_t>, forward<f16_t>, forward<double>},
    {backward<float>, backward<bf16_t>, backward<f16_t>, backward<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
