#include "ops/cpu/kernels/optimizer_kernels.h"

#include "ops/cpu/kernels/random_rounding.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

GW_SIMD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename S>
void adamw_as(const AdamWStep& step, int64_t first, int64_t last) {
  const S g_factor = static_cast<S>(step.g_factor), beta1 = static_cast<S>(step.beta1);
  const S beta2 = static_cast<S>(step.beta2), rest1 = static_cast<S>(1 - step.beta1);
  const S rest2 = static_cast<S>(1 - step.beta2), rate = static_cast<S>(step.rate);
  const S v_factor = static_cast<S>(step.v_factor), eps = static_cast<S>(step.eps),
          keep = static_cast<S>(step.keep);
  S g_block[kConvertBlock], m_block[kConvertBlock], v_block[kConvertBlock];
  uint32_t words[kConvertBlock];
  const bool rounds = step.m.dtype == DType::bf16 || step.v.dtype == DType::bf16;
  for (int64_t at = first; at < last; at += kConvertBlock) {
    const int64_t n = least(kConvertBlock, last - at);
    const S* g = read_block<S>(step.g.dtype, step.g.data, at, n, g_block);
    S* m = open_block<S>(step.m.dtype, step.m.data, at, n, m_block);
    S* v = open_block<S>(step.v.dtype, step.v.data, at, n, v_block);
    S* p = static_cast<S*>(step.p.data) + at;
    for_lanes<S>(
        n, [&](int64_t i, auto part) __attribute__((always_inline)) {
          const Vec<S> gradient = load(g + i, part) * g_factor;
          const Vec<S> first_moment = load(m + i, part) * beta1 + gradient * rest1;
          const Vec<S> second_moment = load(v + i, part) * beta2 + gradient * gradient * rest2;
          const Vec<S> update = first_moment * rate / (sqrt(second_moment) * v_factor + eps);
          store(m + i, first_moment, part);
          store(v + i, second_moment, part);
          store(p + i, load(p + i, part) * keep - update, part);
        });
    if (rounds) random_words(step.rounding, at, n, words);
    write_state<S>(step.m.dtype, step.m.data, at, n, m, words, kRoundsM);
    write_state<S>(step.v.dtype, step.v.data, at, n, v, words, kRoundsV);
    if (step.copy.data != nullptr) write_block<S>(step.copy.dtype, step.copy.data, at, n, p);
  }
}

void adamw(const AdamWStep& step, int64_t first, int64_t last) {
  if (step.p.dtype == DType::f64) {
    adamw_as<double>(step, first, last);
  } else {
    adamw_as<float>(step, first, last);
  }
}

// The sign of zero is zero, and that of NaN is NaN.
template <typename V>
GW_SIMD V sign(V x) {
  return select(x > 0, V{} + 1, select(x < 0, V{} - 1, x));
}

template <typename S>
void lion_as(const LionStep& step, int64_t first, int64_t last) {
  const S g_factor = static_cast<S>(step.g_factor), rate = static_cast<S>(step.rate);
  const S beta1 = static_cast<S>(step.beta1), rest1 = static_cast<S>(1 - step.beta1);
  const S beta2 = static_cast<S>(step.beta2), rest2 = static_cast<S>(1 - step.beta2);
  const S keep = static_cast<S>(step.keep);
  S g_block[kConvertBlock], m_block[kConvertBlock];
  uint32_t words[kConvertBlock];
  for (int64_t at = first; at < last; at += kConvertBlock) {
    const int64_t n = least(kConvertBlock, last - at);
    const S* g = read_block<S>(step.g.dtype, step.g.data, at, n, g_block);
    S* m = open_block<S>(step.m.dtype, step.m.data, at, n, m_block);
    S* p = static_cast<S*>(step.p.data) + at;
    for_lanes<S>(
        n, [&](int64_t i, auto part) __attribute__((always_inline)) {
          const Vec<S> gradient = load(g + i, part) * g_factor, moment = load(m + i, part);
          const Vec<S> direction = sign(moment * beta1 + gradient * rest1);
          store(m + i, moment * beta2 + gradient * rest2, part);
          store(p + i, load(p + i, part) * keep - direction * rate, part);
        });
    if (step.m.dtype == DType::bf16) random_words(step.rounding, at, n, words);
    write_state<S>(step.m.dtype, step.m.data, at, n, m, words, kRoundsM);
    if (step.copy.data != nullptr) write_block<S>(step.copy.dtype, step.copy.data, at, n, p);
  }
}

void lion(const LionStep& step, int64_t first, int64_t last) {
  if (step.p.dtype == DType::f64) {
    lion_as<double>(step, first, last);
  } else {
    lion_as<float>(step, first, last);
  }
}

template <typename S>
void sgd_as(const SgdStep& step, int64_t first, int64_t last) {
  const S g_factor = static_cast<S>(step.g_factor), decay = static_cast<S>(step.weight_decay);
  const S momentum = static_cast<S>(step.momentum), rate = static_cast<S>(step.rate);
  const S m_factor = static_cast<S>(step.m_factor);
  S g_block[kConvertBlock], m_block[kConvertBlock];
  for (int64_t at = first; at < last; at += kConvertBlock) {
    const int64_t n = least(kConvertBlock, last - at);
    const S* g = read_block<S>(step.g.dtype, step.g.data, at, n, g_block);
    S* p = static_cast<S*>(step.p.data) + at;
    if (step.m.data == nullptr) {
      for_lanes<S>(
          n, [&](int64_t i, auto part) __attribute__((always_inline)) {
            const Vec<S> old = load(p + i, part);
            store(p + i, old - (load(g + i, part) * g_factor + old * decay) * rate, part);
          });
    } else {
      // The first step ignores what m holds: a NaN there times 0 would stay a NaN.
      S* m = m_block;
      if (m_factor != S{0}) {
        m = open_block<S>(step.m.dtype, step.m.data, at, n, m_block);
      } else {
        for (int64_t i = 0; i < n; ++i) m[i] = 0;
      }
      for_lanes<S>(
          n, [&](int64_t i, auto part) __attribute__((always_inline)) {
            const Vec<S> old = load(p + i, part);
            const Vec<S> gradient = load(g + i, part) * g_factor + old * decay;
            const Vec<S> moment = load(m + i, part) * m_factor + gradient;
            const Vec<S> direction = step.nesterov ? gradient + moment * momentum : moment;
            store(m + i, moment, part);
            store(p + i, old - direction * rate, part);
          });
      write_block<S>(step.m.dtype, step.m.data, at, n, m);
    }
    if (step.copy.data != nullptr) write_block<S>(step.copy.dtype, step.copy.data, at, n, p);
  }
}

void sgd(const SgdStep& step, int64_t first, int64_t last) {
  if (step.p.dtype == DType::f64) {
    sgd_as<double>(step, first, last);
  } else {
    sgd_as<float>(step, first, last);
  }
}

}  // namespace

extern const OptimizerKernels optimizer_kernels = {adamw, lion, sgd};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
