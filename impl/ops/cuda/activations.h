// The activation functions inside kernels (ops/ops.h, Activation). The choice is the same for all threads of a
// kernel, so its branches cost little beside the access to memory.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cuda/numbers.h"
#include "ops/ops.h"

namespace gangway::cuda {

template <typename S>
__device__ S sigmoid(S x) {
  return S(1) / (S(1) + exp(-x));
}

// A function's value at x, and its derivative there.
template <typename S>
struct Activated {
  S value, slope;
};

template <typename S>
__device__ Activated<S> silu(S x) {
  const S s = sigmoid(x), value = x * s;
  return {value, s + value * (S(1) - s)};
}

template <typename S>
__device__ Activated<S> gelu_tanh(S x) {
  constexpr S kRoot = S(0.79788456080286535588), kCubic = S(0.044715);  // sqrt(2 / pi)
  const S part = tanh(kRoot * x * (S(1) + kCubic * x * x)), half = S(0.5) * (S(1) + part);
  const S inner = kRoot * (S(1) + S(3) * kCubic * x * x);
  return {x * half, half + S(0.5) * x * (S(1) - part * part) * inner};
}

// The complement of the error function keeps the relative precision of the left tail.
template <typename S>
__device__ Activated<S> gelu(S x) {
  constexpr S kHalfRoot = S(0.70710678118654752440);  // sqrt(1 / 2)
  constexpr S kDensity = S(0.39894228040143267794);   // 1 / sqrt(2 pi)
  const S below = S(0.5) * erfc(-kHalfRoot * x);
  return {x * below, below + x * kDensity * exp(S(-0.5) * x * x)};
}

template <typename S>
__device__ Activated<S> relu(S x) {
  return {x < S(0) ? S(0) : x, x > S(0) ? S(1) : S(0)};
}

template <typename S>
__device__ Activated<S> hyperbolic_tangent(S x) {
  const S value = tanh(x);
  return {value, S(1) - value * value};
}

template <typename S>
__device__ Activated<S> activate(Activation activation, S x) {
  switch (activation) {
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::gelu: return gelu(x);
    case Activation::relu: return relu(x);
    case Activation::tanh: return hyperbolic_tangent(x);
    case Activation::silu: break;
  }
  return silu(x);
}

}  // namespace gangway::cuda
