#include "ops/cpu/kernels/swiglu_kernels.h"

#include "ops/cpu/kernels/activations.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

// Both passes compute y by the same operations in the same order, so a recomputed y has the same bits.
template <typename V>
GW_SIMD V output(V activated, V up) {
  return activated * up;
}

template <typename F, typename T>
void forward(const SwigluRows& p, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t) {
    const T* gate = static_cast<const T*>(p.gate) + t * p.gate_stride;
    const T* up = static_cast<const T*>(p.up) + t * p.up_stride;
    T* y = static_cast<T*>(p.y) + t * p.width;
    for_lanes<T>(p.width, [&](int64_t f, auto n) GW_BODY {
      store(y + f, output(F::value(load(gate + f, n)), load(up + f, n)), n);
    });
  }
}

// The loop reads all its inputs before it writes, since results may overwrite inputs.
template <typename F, typename T>
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
      const Vec<T> value = F::value(g), slope = F::slope(g, value);
      if (y != nullptr) store(y + f, output(value, u), n);
      store(dup + f, d * value, n);
      store(dgate + f, d * u * slope, n);
    });
  }
}

template <typename F>
constexpr SwigluKernel kForward = {forward<F, float>, forward<F, bf16_t>, forward<F, f16_t>,
                                   forward<F, double>};
template <typename F>
constexpr SwigluBackwardKernel kBackward = {backward<F, float>, backward<F, bf16_t>, backward<F, f16_t>,
                                            backward<F, double>};

}  // namespace

extern const SwigluKernels swiglu_kernels = {
    {{kForward<Silu>, kForward<GeluTanh>, kForward<Gelu>, kForward<Relu>, kForward<Tanh>}},
    {{kBackward<Silu>, kBackward<GeluTanh>, kBackward<Gelu>, kBackward<Relu>, kBackward<Tanh>}},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
