#include "ops/cpu/kernels/activation_kernels.h"

#include "ops/cpu/kernels/activations.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

template <typename F, typename T>
void forward(const ActivationElements& p, int64_t first, int64_t last) {
  const T* x = static_cast<const T*>(p.x) + first;
  T* y = static_cast<T*>(p.y) + first;
  for_lanes<T>(last - first, [&](int64_t i, auto n) GW_BODY { store(y + i, F::value(load(x + i, n)), n); });
}

// The loop reads its inputs before it writes, since results may overwrite them.
template <typename F, typename T>
void backward(const ActivationElements& p, int64_t first, int64_t last) {
  const T *x = static_cast<const T*>(p.x) + first, *dy = static_cast<const T*>(p.dy) + first;
  T *dx = static_cast<T*>(p.dx) + first, *y = p.y != nullptr ? static_cast<T*>(p.y) + first : nullptr;
  for_lanes<T>(last - first, [&](int64_t i, auto n) GW_BODY {
    const Vec<T> in = load(x + i, n), value = F::value(in), d = load(dy + i, n) * F::slope(in, value);
    if (y != nullptr) store(y + i, value, n);
    store(dx + i, d, n);
  });
}

template <typename F>
constexpr ActivationKernel kForward = {forward<F, float>, forward<F, bf16_t>, forward<F, f16_t>,
                                       forward<F, double>};
template <typename F>
constexpr ActivationKernel kBackward = {backward<F, float>, backward<F, bf16_t>, backward<F, f16_t>,
                                        backward<F, double>};

}  // namespace

extern const ActivationKernels activation_kernels = {
    {{kForward<Silu>, kForward<GeluTanh>, kForward<Gelu>, kForward<Relu>, kForward<Tanh>}},
    {{kBackward<Silu>, kBackward<GeluTanh>, kBackward<Gelu>, kBackward<Relu>, kBackward<Tanh>}},
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
