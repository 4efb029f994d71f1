// Helpers that the layers share: checked access to inputs, gradients, and a parameter's value and gradient.
//
// Thread rule: that of the module.
#pragma once

#include "nn/module.h"

namespace gangway {

constexpr DType statistics_dtype(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

inline bool on_meta(Context& ctx) { return ctx.ops.device().kind() == DeviceKind::meta; }

// Returns whether backward makes a gradient for the parameter.
inline bool wants_gradient(const Parameter& p) { return p.trainable && p.kind == Parameter::Kind::parameter; }

// Returns the dtype and shape of the value that compute reads, also while the parameter is sharded and the
// value absent.
inline Spec spec_of(const Parameter& p) {
  if (p.value) return spec_of(p.value);
  return {p.shard_copy ? p.shard_copy.dtype() : p.dtype, p.compute_shape()};
}

// Return the first input, or the gradient of the first output, of a built-in layer. INVALID_ARGUMENT: a
// caller of the manual forward/backward API gave none.
const Spec& first_input(std::span<const Spec> inputs, const Module& layer);
const Tensor& first_input(std::span<const Tensor> inputs, const Module& layer);
const Tensor& first_gradient(std::span<const Tensor> dy, const Module& layer);

// Returns the value that compute reads. INVALID_STATE: there is none (not materialized, or sharded).
const Tensor& value_of(const Parameter& parameter);

// Returns the gradient for an operation that can either overwrite or add. INVALID_STATE: it has no storage.
GradientTarget gradient_to_write(Parameter& parameter);

// Returns the gradient for an operation that only adds; zeroes it before the first term. INVALID_STATE: it
// has no storage.
Tensor gradient_to_add(Context& ctx, Parameter& parameter);

// Returns x in `dtype`: x itself, or a copy in the temporaries. A model may keep norms, sinks or its head in
// f32 and compute products in bf16.
Tensor as_dtype(Context& ctx, const Tensor& x, DType dtype);

// Returns `shape` with its last dim replaced by `last`.
Shape with_last(const Shape& shape, int64_t last);

}  // namespace gangway
