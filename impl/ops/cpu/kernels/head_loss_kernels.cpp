#include "ops/cpu/kernels/head_loss_kernels.h"

#include "ops/cpu/kernels/tanh.h"
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

// Returns the sum of exp(x - shift), and replaces x by it if kStores. Lanes are summed over blocks of 1024
// elements, and blocks in f64.
template <bool kStores, typename S>
double exponentials(S* x_V, int64_t n, S shift) {
  constexpr int64_t block = 1024;
  S spare[Compute<S>::kLanes];
  double total = 0;
  for (int64_t at = 0; at < n; at += block) {
    const int64_t count = n - at < block ? n - at : block;
    Vec<S> a = zeros<S>();
    for_lanes<S>(
        count, [&](int64_t i, auto part) __attribute__((always_inline)) {
          S* const place = kStores ? x_V + at + i : spare;
          store(place, exp_flush(load(x_V + at + i, part) - shift), part);
          a += load(place, part);  // lanes past the end are 0
        });
    total += static_cast<double>(sum(a));
  }
  return total;
}

// Returns the sum of x, in f64 over blocks.
template <typename S>
double sum_of(const S* x_V, int64_t n) {
  constexpr int64_t block = 1024;
  double total = 0;
  for (int64_t at = 0; at < n; at += block) {
    const int64_t count = n - at < block ? n - at : block;
    Vec<S> a = zeros<S>();
    for_lanes<S>(
        count, [&](int64_t i, auto part) __attribute__((always_inline)) { a += load(x_V + at + i, part); });
    total += static_cast<double>(sum(a));
  }
  return total;
}

template <typename S>
void cap_logits(S* x_V, int64_t n, S cap) {
  for_lanes<S>(
      n, [&](int64_t i, auto part)
             __attribute__((always_inline)) { store(x_V + i, tanh(load(x_V + i, part) / cap) * cap, part); });
}

// y = x * factor - minus, of exponentials x. y may lie at the front of x's memory: it goes upwards, so it
// overwrites no element before it has read it.
template <typename S, typename T>
void gradient_into(const S* x_V, int64_t n, S factor, S minus, T* y_V) {
  for_lanes<S>(
      n, [&](int64_t i, auto part)
             __attribute__((always_inline)) { store(y_V + i, load(x_V + i, part) * factor - minus, part); });
}

// Likewise of capped logits x, times the derivative of the cap, 1 - (x / cap)^2.
template <typename S, typename T>
void capped_gradient_into(const S* x_V, int64_t n, S shift, S factor, S minus, S cap, T* y_V) {
  for_lanes<S>(
      n, [&](int64_t i, auto part) __attribute__((always_inline)) {
        const Vec<S> x = load(x_V + i, part), ratio = x / cap;
        store(y_V + i, (exp_flush(x - shift) * factor - minus) * (static_cast<S>(1) - ratio * ratio), part);
      });
}

template <typename S>
RowLoss row(S* logits_V, int64_t vocabulary, int64_t label, const RowTerms& terms, LossGradient gradient) {
  const bool capped = terms.cap > 0;
  const S cap = static_cast<S>(terms.cap);
  if (capped) cap_logits(logits_V, vocabulary, cap);
  const S shift = largest(logits_V, vocabulary), label_logit = logits_V[label];
  const S at_label = label_logit - shift;
  const double s = terms.label_smoothing;
  const double mean = s == 0 ? 0 : sum_of(logits_V, vocabulary) / static_cast<double>(vocabulary);
  const double total = capped ? exponentials<false>(logits_V, vocabulary, shift)
                              : exponentials<true>(logits_V, vocabulary, shift);
  const double negative_log = log(total) - static_cast<double>(at_label);
  const double lse = log(total) + static_cast<double>(shift);
  const double smooth = s == 0 ? 0 : s * (lse - mean);
  const RowLoss loss{terms.weight * ((1 - s) * negative_log + smooth + terms.z_loss * lse * lse),
                     -negative_log};
  if (gradient == LossGradient::none) return loss;

  const double slope = 1 + 2 * terms.z_loss * lse, scale = terms.scale * terms.weight;
  const double spread = s / static_cast<double>(vocabulary);  // what smoothing takes from each logit
  const S factor = static_cast<S>(scale * slope / total), minus = static_cast<S>(scale * spread);
  const double e =
      capped ? __builtin_exp(static_cast<double>(at_label)) : static_cast<double>(logits_V[label]);
  // The label's element, computed before any rounding to bf16.
  double own = (e / total * slope - (1 - s) - spread) * scale;
  if (capped) {
    const double ratio = static_cast<double>(label_logit) / terms.cap;
    own *= 1 - ratio * ratio;
  }
  const auto write = [&](auto* y_V) __attribute__((always_inline)) {
    if (capped)
      capped_gradient_into(logits_V, vocabulary, shift, factor, minus, cap, y_V);
    else
      gradient_into(logits_V, vocabulary, factor, minus, y_V);
  };
  if (gradient == LossGradient::same) {
    write(logits_V);
    logits_V[label] = static_cast<S>(own);
  } else if constexpr (sizeof(S) == 4) {
    bf16_t* const y_V = reinterpret_cast<bf16_t*>(logits_V);
    write(y_V);
    store(y_V + label, set(static_cast<S>(own)), Part{1});
  }
  return loss;
}

template <typename S>
RowPart part(S* logits_V, int64_t vocabulary, int64_t label, double cap, bool wants_sum) {
  if (cap > 0) cap_logits(logits_V, vocabulary, static_cast<S>(cap));
  const S most = largest(logits_V, vocabulary);
  const double at_label = label < 0 ? -__builtin_inf() : static_cast<double>(logits_V[label]);
  const double logit_sum = wants_sum ? sum_of(logits_V, vocabulary) : 0;
  const double sum = cap > 0 ? exponentials<false>(logits_V, vocabulary, most)
                             : exponentials<true>(logits_V, vocabulary, most);
  return {static_cast<double>(most), sum, logit_sum, at_label};
}

template <typename S>
void gradient(S* x_V, int64_t vocabulary, const PartGradient& g) {
  const S factor = static_cast<S>(g.factor), minus = static_cast<S>(g.minus);
  if (g.cap > 0)
    capped_gradient_into(x_V, vocabulary, static_cast<S>(g.shift), factor, minus, static_cast<S>(g.cap), x_V);
  else
    gradient_into(x_V, vocabulary, factor, minus, x_V);
}

}  // namespace

extern const HeadLossKernels head_loss_kernels = {row<float>,   row<double>,     part<float>,
                                                  part<double>, gradient<float>, gradient<double>};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
