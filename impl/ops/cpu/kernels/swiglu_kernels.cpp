#include "ops/cpu/kernels/swiglu_kernels.h"

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

template <typename V>
GW_SIMD V one() {
  return set(static_cast<decltype(to_scalar(V{}[0]))>(1));
}

// 1 / (1 + e^-g), and e^g / (1 + e^g) for a negative g. So the exponent is never positive, and the cheaper
// exp_flush is enough.
template <typename V>
GW_SIMD V sigmoid(V g) {
  const V e = exp_flush(-abs(g));
  return select(g < V{}, e, one<V>()) / (one<V>() + e);
}

// Both passes compute y by the same operations in the same order, so a recomputed y has the same bits.
template <typename V>
GW_SIMD V output(V silu, V up) {
  return silu * up;
}

template <typename T>
void forward(const SwigluRows& p, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t) {
    const T* gate = static_cast<const T*>(p.gate) + t * p.gate_stride;
    const T* up = static_cast<const T*>(p.up) + t * p.up_stride;
    T* y = static_cast<T*>(p.y) + t * p.width;
    for_lanes<T>(p.width, [&](int64_t f, auto n) GW_BODY {
      const Vec<T> g = load(gate + f, n);
      store(y + f, output(g * sigmoid(g), load(up + f, n)), n);
    });
  }
}

// With s = sigmoid(g): d silu / d g = s + silu (1 - s). The loop reads all its inputs before it writes, since
// results may overwrite inputs.
template <typename T>
void backward(const SwigluBackwardRows& p, int64_t first, int64_t last) {
  const SwigluRows& in = p.forward;
  for (int64_t t = first; t < last; ++t) {
    const T* gate = static_cast<const T*>(in.gate) + t * in.gate_stride;
    const T* up = static_cast<const T*>(in.up) + t * in.up_stride;
    const T* dy = static_cast<const T*>(p.dy) + t * in.width;
    T* dgate = static_cast<T*>(p.dgate) + t * p.dgate_stride;
    T* dup = static_cast<T*>(p.dup) + t * p.dup_stride;
    T* y = in.y != nullptr ? static_cast<T*>(in.y) + t * in.width : nullptr;
    for_lanes<T>(in.width, [&](int64_t f, auto n) GW_BODY {
      const Vec<T> g = load(gate + f, n), u = load(up + f, n), d = load(dy + f, n);
      const Vec<T> s = sigmoid(g), silu = g * s;
      if (y != nullptr) store(y + f, output(silu, u), n);
      store(dup + f, d * silu, n);
      store(dgate + f, d * u * (s + silu * (one<Vec<T>>() - s)), n);
    });
  }
}

}  // namespace

extern const SwigluKernels swiglu_kernels = {
    {forward<float>, forward<bf16_t>, forward<f16_t>, forward<double>},
    {backward<float>, backward<bf16_t>, backward<f16_t>, backward<double>},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
