#include "ops/cpu/kernels/attention_kernels.h"
#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

GW_SIMD float exp_of(float x) { return __builtin_expf(x); }
GW_SIMD double exp_of(double x) { return __builtin_exp(x); }
GW_SIMD float log1p_of(float x) { return __builtin_log1pf(x); }
GW_SIMD double log1p_of(double x) { return __builtin_log1p(x); }

template <typename S>
GW_SIMD S* at(const StatisticsView& view, int64_t b, int64_t h, int64_t s) {
  return static_cast<S*>(view.data) + b * view.batch_stride + h * view.head_stride + s * view.row_stride;
}
template <typename T>
GW_SIMD T* at(const HeadsView& view, int64_t b, int64_t s, int64_t h) {
  return static_cast<T*>(view.data) + b * view.batch_stride + s * view.row_stride + h * view.head_stride;
}

template <typename T>
void merge(const AttentionMerge& p, int64_t first, int64_t last) {
  using S = Scalar<T>;
  for (int64_t t = first; t < last; ++t) {
    const int64_t b = t / p.sequence, s = t % p.sequence;
    for (int64_t h = 0; h < p.heads; ++h) {
      S* const lse = at<S>(p.lse, b, h, s);
      const S part_lse = *at<S>(p.part_lse, b, h, s);
      if (part_lse == -static_cast<S>(__builtin_inf())) continue;
      // An lse of -infinity gives the part the weight 1, and the part's lse is the result.
      const Vec<T> weight = set(S(1) / (S(1) + exp_of(*lse - part_lse)));
      S* const out = at<S>(p.out, b, s, h);
      const T* const part = at<const T>(p.part, b, s, h);
      for_lanes<T>(p.width, [&](int64_t d, auto n) GW_BODY {
        const Vec<T> before = load(out + d, n);
        store(out + d, fma(weight, load(part + d, n) - before, before), n);
      });
      const S above = part_lse - *lse;
      *lse = (above > 0 ? part_lse : *lse) + log1p_of(exp_of(above > 0 ? -above : above));
    }
  }
}

}  // namespace

extern const AttentionMergeKernels attention_merge_kernels = {
    {merge<float>, merge<bf16_t>, merge<f16_t>, merge<double>}};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
