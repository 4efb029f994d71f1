#include "ops/cpu/kernels/head_loss_kernels.h"

#include "ops/cpu/simd.h"

// V: vocabulary.

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

template <typename S>
GW_SIMD Vec<S> zeros() {
  return Vec<S>{};
}

template <typename S>
S largest(const S* x_V, int64_t n) {
  constexpr int lanes = Compute<S>::kLanes;
  Vec<S> a = zeros<S>() - static_cast<S>(__builtin_inf()), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = max(load(x_V + i), a);
    b = max(load(x_V + i + lanes), b);
  }
  S most = max_lane(max(a, b));
  for (; i < n; ++i) most = x_V[i] > most ? x_V[i] : most;
  return most;
}

// Replaces x by exp(x - shift) and returns the sum. Lanes are summed over blocks of 1024 elements, and blocks
// in f64.
template <typename S>
double exponentials(S* x_V, int64_t n, S shift) {
  constexpr int64_t block = 1024;
  double total = 0;
  for (int64_t at = 0; at < n; at += block) {
    const int64_t count = n - at < block ? n - at : block;
    Vec<S> a = zeros<S>();
    for_lanes<S>(
        count, [&](int64_t i, auto part) __attribute__((always_inline)) {
          const Vec<S> e = exp_flush(load(x_V + at + i, part) - shift);
          store(x_V + at + i, e, part);
          a += load(x_V + at + i, part);  // lanes past the end are 0
        });
    total += static_cast<double>(sum(a));
  }
  return total;
}

template <typename S, typename T>
void scale_into(const S* x_V, int64_t n, S factor, T* y_V) {
  for_lanes<S>(
      n, [&](int64_t i, auto part)
             __attribute__((always_inline)) { store(y_V + i, load(x_V + i, part) * factor, part); });
}

template <typename S>
double row(S* logits_V, int64_t vocabulary, int64_t label, double scale, LossGradient gradient) {
  const S shift = largest(logits_V, vocabulary);
  const S at_label = logits_V[label] - shift;
  const double total = exponentials(logits_V, vocabulary, shift);
  const S factor = static_cast<S>(scale / total);
  // The label's probability minus 1, computed before any rounding to bf16.
  const S gradient_at_label = static_cast<S>((static_cast<double>(logits_V[label]) / total - 1.0) * scale);
  switch (gradient) {
    case LossGradient::none: break;
    case LossGradient::same:
      scale_into(logits_V, vocabulary, factor, logits_V);
      logits_V[label] = gradient_at_label;
      break;
    case LossGradient::bf16:
      if constexpr (sizeof(S) == 4) {
        // scale_into goes upwards, so it overwrites no logit before it has read it.
        bf16_t* y_V = reinterpret_cast<bf16_t*>(logits_V);
        scale_into(logits_V, vocabulary, factor, y_V);
        store(y_V + label, set(gradient_at_label), Part{1});
      }
      break;
  }
  return log(total) - static_cast<double>(at_label);
}

template <typename S>
HeadLossKernels::Part part(S* logits_V, int64_t vocabulary) {
  const S most = largest(logits_V, vocabulary);
  return {static_cast<double>(most), exponentials(logits_V, vocabulary, most)};
}

template <typename S>
void scale(S* x_V, int64_t vocabulary, double factor) {
  scale_into(x_V, vocabulary, static_cast<S>(factor), x_V);
}

}  // namespace

extern const HeadLossKernels head_loss_kernels = {row<float>,   row<double>,  part<float>,
                                                  part<double>, scale<float>, scale<double>};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
