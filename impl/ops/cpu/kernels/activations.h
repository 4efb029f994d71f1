// The activations of ops.h on vectors. Only kernels include it.
//
// Each activation is a struct of value(x) and slope(x, value(x)). kActivations of activation_kernels.h counts
// them, and their order is that of Activation.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cpu/kernels/tanh.h"
#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

template <typename V>
using ScalarOf = decltype(to_scalar(V{}[0]));

// A vector of a constant.
template <typename V>
GW_SIMD V all(double x) {
  return set(static_cast<ScalarOf<V>>(x));
}

// 1 / (1 + e^-g), and e^g / (1 + e^g) for a negative g: the exponent is never positive, so that the cheaper
// exp_flush is enough.
template <typename V>
GW_SIMD V sigmoid(V g) {
  const V e = exp_flush(-abs(g));
  return select(g < V{}, e, all<V>(1)) / (all<V>(1) + e);
}

struct Silu {
  template <typename V>
  GW_SIMD static V value(V x) {
    return x * sigmoid(x);
  }
  template <typename V>
  GW_SIMD static V slope(V x, V value) {
    const V s = sigmoid(x);
    return s + value * (all<V>(1) - s);
  }
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x * sigmoid(2 u), which stays exact where
// tanh(u) is near -1. Beyond 64 the sigmoid is 0 or 1; x is cut off there, since x^3 would overflow.
constexpr double kSqrt2OverPi = 0.7978845608028654;
struct GeluTanh {
  template <typename V>
  GW_SIMD static V cut(V x) {
    return min(all<V>(64), max(all<V>(-64), x));
  }
  template <typename V>
  GW_SIMD static V gate(V x) {
    const V c = cut(x);
    return sigmoid(c * fma(c * c, all<V>(2 * kSqrt2OverPi * 0.044715), all<V>(2 * kSqrt2OverPi)));
  }
  template <typename V>
  GW_SIMD static V value(V x) {
    return x * gate(x);
  }
  template <typename V>
  GW_SIMD static V slope(V x, V value) {
    const V s = gate(x), c = cut(x);
    const V steepness = fma(c * c, all<V>(6 * kSqrt2OverPi * 0.044715), all<V>(2 * kSqrt2OverPi));
    return s + value * (all<V>(1) - s) * steepness;
  }
};

// erfc(z) for z >= 0, within 2e-7 of the largest value: the Chebyshev fit of Press et al., "Numerical
// recipes".
GW_SIMD F32 erfc_positive(F32 z) {
  const F32 t = 1.0f / fma(z, set(0.5f), set(1.0f));
  F32 p = fma(t, set(0.17087277f), set(-0.82215223f));
  p = fma(p, t, set(1.48851587f));
  p = fma(p, t, set(-1.13520398f));
  p = fma(p, t, set(0.27886807f));
  p = fma(p, t, set(-0.18628806f));
  p = fma(p, t, set(0.09678418f));
  p = fma(p, t, set(0.37409196f));
  p = fma(p, t, set(1.00002368f));
  p = fma(p, t, set(-1.26551223f));
  return t * exp_flush(fma(-z, z, p));
}
GW_SIMD F64 erfc_positive(F64 z) {
  for (int i = 0; i < kLanes64; ++i) z[i] = __builtin_erfc(z[i]);
  return z;
}

// x times the normal distribution function of x.
struct Gelu {
  template <typename V>
  GW_SIMD static V distribution(V x) {
    const V tail = erfc_positive(abs(x) * all<V>(0.7071067811865476)) * all<V>(0.5);
    return select(x < V{}, tail, all<V>(1) - tail);
  }
  template <typename V>
  GW_SIMD static V value(V x) {
    return x * distribution(x);
  }
  template <typename V>
  GW_SIMD static V slope(V x, V) {
    const V density = exp_flush(x * x * all<V>(-0.5)) * all<V>(0.3989422804014327);
    return fma(x, density, distribution(x));
  }
};

struct Relu {
  template <typename V>
  GW_SIMD static V value(V x) {
    return max(V{}, x);
  }
  template <typename V>
  GW_SIMD static V slope(V x, V) {
    return select(x > V{}, all<V>(1), V{});
  }
};

struct Tanh {
  template <typename V>
  GW_SIMD static V value(V x) {
    return tanh(x);
  }
  template <typename V>
  GW_SIMD static V slope(V, V value) {
    return all<V>(1) - value * value;
  }
};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
