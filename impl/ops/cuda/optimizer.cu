#include <cmath>

#include "ops/cuda/families.h"
#include "ops/cuda/random_rounding.h"

// Each kernel reads and writes every array once, in one pass. The formulas are those of ops.h. The host
// computes the factors that are the same for all elements.

namespace gangway::cuda {
namespace {

struct AdamW {
  Array p, g, m, v, copy;
  int64_t count;
  double g_factor, beta1, beta2, rate, v_factor, eps, keep;
  RandomRounding rounding;
};

template <typename S, int n>
__global__ void adamw_kernel(AdamW a) {
  const S g_factor = static_cast<S>(a.g_factor), beta1 = static_cast<S>(a.beta1),
          beta2 = static_cast<S>(a.beta2);
  const S rest1 = static_cast<S>(1 - a.beta1), rest2 = static_cast<S>(1 - a.beta2),
          rate = static_cast<S>(a.rate);
  const S v_factor = static_cast<S>(a.v_factor), eps = static_cast<S>(a.eps), keep = static_cast<S>(a.keep);
  for_elements<n>(a.count, [&](auto k, int64_t at) {
    const Pack<S, k()> g = read<k(), S>(a.g, at);
    Pack<S, k()> p = read<k(), S>(a.p, at), m = read<k(), S>(a.m, at), v = read<k(), S>(a.v, at);
    for (int i = 0; i < k(); ++i) {
      const S gradient = g.at[i] * g_factor;
      m.at[i] = m.at[i] * beta1 + gradient * rest1;
      v.at[i] = v.at[i] * beta2 + gradient * gradient * rest2;
      p.at[i] = p.at[i] * keep - m.at[i] * rate / (sqrt(v.at[i]) * v_factor + eps);
    }
    RandomWords<k()> words = {};
    if (a.m.dtype == DType::bf16 || a.v.dtype == DType::bf16) words = random_words<k()>(a.rounding, at);
    write_state<k()>(a.m, at, m, words, kRoundsM);
    write_state<k()>(a.v, at, v, words, kRoundsV);
    write<k()>(a.p, at, p);
    if (a.copy.data != nullptr) write<k()>(a.copy, at, p);
  });
}

struct Lion {
  Array p, g, m, copy;
  int64_t count;
  double g_factor, beta1, beta2, rate, keep;
  RandomRounding rounding;
};

template <typename S, int n>
__global__ void lion_kernel(Lion a) {
  const S g_factor = static_cast<S>(a.g_factor), rate = static_cast<S>(a.rate), keep = static_cast<S>(a.keep);
  const S beta1 = static_cast<S>(a.beta1), rest1 = static_cast<S>(1 - a.beta1);
  const S beta2 = static_cast<S>(a.beta2), rest2 = static_cast<S>(1 - a.beta2);
  for_elements<n>(a.count, [&](auto k, int64_t at) {
    const Pack<S, k()> g = read<k(), S>(a.g, at);
    Pack<S, k()> p = read<k(), S>(a.p, at), m = read<k(), S>(a.m, at);
    for (int i = 0; i < k(); ++i) {
      const S gradient = g.at[i] * g_factor;
      const S direction = m.at[i] * beta1 + gradient * rest1;
      m.at[i] = m.at[i] * beta2 + gradient * rest2;
      // The sign of zero is zero, and that of NaN is NaN.
      p.at[i] = p.at[i] * keep - (direction > S(0) ? S(1) : direction < S(0) ? S(-1) : direction) * rate;
    }
    RandomWords<k()> words = {};
    if (a.m.dtype == DType::bf16) words = random_words<k()>(a.rounding, at);
    write_state<k()>(a.m, at, m, words, kRoundsM);
    write<k()>(a.p, at, p);
    if (a.copy.data != nullptr) write<k()>(a.copy, at, p);
  });
}

struct Sgd {
  Array p, g, m, copy;
  int64_t count;
  double g_factor, weight_decay, momentum, m_factor, rate;
  bool nesterov;
};

template <typename S, int n>
__global__ void sgd_kernel(Sgd a) {
  const S g_factor = static_cast<S>(a.g_factor), decay = static_cast<S>(a.weight_decay);
  const S momentum = static_cast<S>(a.momentum), m_factor = static_cast<S>(a.m_factor),
          rate = static_cast<S>(a.rate);
  for_elements<n>(a.count, [&](auto k, int64_t at) {
    const Pack<S, k()> g = read<k(), S>(a.g, at);
    Pack<S, k()> p = read<k(), S>(a.p, at), m;
    // The first step ignores what m holds: a NaN there times 0 would stay a NaN.
    if (a.m.data != nullptr && m_factor != S(0)) m = read<k(), S>(a.m, at);
    for (int i = 0; i < k(); ++i) {
      const S gradient = g.at[i] * g_factor + p.at[i] * decay;
      S direction = gradient;
      if (a.m.data != nullptr) {
        m.at[i] = m_factor != S(0) ? m.at[i] * m_factor + gradient : gradient;
        direction = a.nesterov ? gradient + m.at[i] * momentum : m.at[i];
      }
      p.at[i] -= direction * rate;
    }
    if (a.m.data != nullptr) write<k()>(a.m, at, m);
    write<k()>(a.p, at, p);
    if (a.copy.data != nullptr) write<k()>(a.copy, at, p);
  });
}

// The array with the widest elements decides how many elements a pack has.
template <typename Body>
void with_widest(const Tensor& p, std::initializer_list<const Tensor*> others, Body&& body) {
  bool f64 = p.dtype() == DType::f64;
  uint64_t addresses = address(p);
  for (const Tensor* const t : others) {
    addresses |= address(*t);
    f64 = f64 || (*t && t->dtype() == DType::f64);
  }
  const bool fit = fits_packs({addresses});
  if (p.dtype() == DType::f64) return with_packs<double>(fit, [&](auto n) { body(double{}, n); });
  if (!f64) return with_packs<float>(fit, [&](auto n) { body(float{}, n); });
  with_packs<double>(fit, [&](auto n) { body(float{}, n); });
}

}  // namespace

void adamw(const AdamWArgs& args, Stream& stream) {
  const int64_t count = args.p.count();
  if (count == 0) return;
  const OptimizerControl& control = args.control;
  const double lr = control.lr * args.lr_scale, step = static_cast<double>(control.step);
  const AdamW a = {array_of(args.p),
                   array_of(args.g),
                   array_of(args.m),
                   array_of(args.v),
                   array_of(args.copy),
                   count,
                   control.scale * control.clip,
                   args.beta1,
                   args.beta2,
                   lr / (1 - std::pow(args.beta1, step)),
                   1 / std::sqrt(1 - std::pow(args.beta2, step)),
                   args.eps,
                   1 - lr * args.weight_decay,
                   args.rounding};
  with_widest(args.p, {&args.g, &args.m, &args.v, &args.copy}, [&](auto type, auto n) {
    launch("adamw", adamw_kernel<decltype(type), n()>, flat_grid(count, n()), native(stream), a);
  });
}

void lion(const LionArgs& args, Stream& stream) {
  const int64_t count = args.p.count();
  if (count == 0) return;
  const OptimizerControl& control = args.control;
  const double lr = control.lr * args.lr_scale;
  const Lion a = {array_of(args.p),
                  array_of(args.g),
                  array_of(args.m),
                  array_of(args.copy),
                  count,
                  control.scale * control.clip,
                  args.beta1,
                  args.beta2,
                  lr,
                  1 - lr * args.weight_decay,
                  args.rounding};
  with_widest(args.p, {&args.g, &args.m, &args.copy}, [&](auto type, auto n) {
    launch("lion", lion_kernel<decltype(type), n()>, flat_grid(count, n()), native(stream), a);
  });
}

void sgd(const SgdArgs& args, Stream& stream) {
  const int64_t count = args.p.count();
  if (count == 0) return;
  const OptimizerControl& control = args.control;
  const Sgd a = {array_of(args.p),
                 array_of(args.g),
                 args.momentum != 0 ? array_of(args.m) : Array{},
                 array_of(args.copy),
                 count,
                 control.scale * control.clip,
                 args.weight_decay,
                 args.momentum,
                 control.step <= 1 ? 0 : args.momentum,
                 control.lr * args.lr_scale,
                 args.nesterov};
  with_widest(args.p, {&args.g, &args.m, &args.copy}, [&](auto type, auto n) {
    launch("sgd", sgd_kernel<decltype(type), n()>, flat_grid(count, n()), native(stream), a);
  });
}

}  // namespace gangway::cuda
