// Helpers that the layers share: a parameter's value and gradient while computing.
// Thread rule: that of the module.
#pragma once

#include "nn/module.h"

namespace gangway {

constexpr DType statistics_dtype(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

inline bool on_meta(Context& ctx) { return ctx.ops.device().kind() == DeviceKind::meta; }

// Whether backward makes a gradient for it.
inline bool wants_gradient(const Parameter& p) { return p.trainable && p.kind == Parameter::Kind::parameter; }

// What compute reads, or will read: values may be absent now.
inline Spec spec_of(const Parameter& p) {
  if (p.value) return spec_of(p.value);
  return {p.shard_copy ? p.shard_copy.dtype() : p.dtype, p.compute_shape()};
}

// What a built-in layer starts from. INVALID_ARGUMENT when a caller by hand gave none.
const Spec& first_input(std::span<const Spec> inputs, const Module& layer);
const Tensor& first_input(std::span<const Tensor> inputs, const Module& layer);
const Tensor& first_gradient(std::span<const Tensor> dy, const Module& layer);

// The value that compute reads. INVALID_STATE while there is none.
const Tensor& value_of(const Parameter& parameter);

// The gradient, for an operation with a beta. INVALID_STATE without storage.
GradientTarget gradient_to_write(Parameter& parameter);

// The gradient, for an operation that only adds: zeroed before first use.
Tensor gradient_to_add(Context& ctx, Parameter& parameter);

// `shape` with another last dim.
Shape with_last(const Shape& shape, int64_t last);

}  // namespace gangway
