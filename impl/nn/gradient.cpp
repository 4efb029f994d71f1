#include "nn/gradient.h"

namespace gangway {
namespace {

const std::string& called(const Parameter& p) { return p.full_name.empty() ? p.name : p.full_name; }

void check_first_input(bool none, bool absent, const Module& layer) {
  if (none || absent)
    fail(Code::invalid_argument, layer.kind(), " ", layer.full_name(), ": ",
         none ? "got no input" : "the data of input 0 is null");
}

void check_gradient(const Parameter& p) {
  if (p.grad == nullptr)
    fail(Code::invalid_state, "parameter ", called(p), " ", p.shape.text(),
         " is trainable and has no gradient storage here");
}

}  // namespace

const Spec& first_input(std::span<const Spec> inputs, const Module& layer) {
  check_first_input(inputs.empty(), !inputs.empty() && inputs[0].dtype == DType{}, layer);
  return inputs[0];
}

const Tensor& first_input(std::span<const Tensor> inputs, const Module& layer) {
  check_first_input(inputs.empty(), !inputs.empty() && !inputs[0], layer);
  return inputs[0];
}

const Tensor& first_gradient(std::span<const Tensor> dy, const Module& layer) {
  if (dy.empty() || !dy[0])
    fail(Code::invalid_argument, layer.kind(), " ", layer.full_name(), ": ",
         dy.empty() ? "got no gradient of its output"
                    : "the gradient of its output is null; zeros are to be given as such");
  return dy[0];
}

const Tensor& value_of(const Parameter& parameter) {
  if (!parameter.value)
    fail(Code::invalid_state, "parameter ", called(parameter), " ", parameter.shape.text(),
         " has no values here: materialize or unshard comes first");
  return parameter.value;
}

GradientTarget gradient_to_write(Parameter& parameter) {
  check_gradient(parameter);
  return parameter.grad->target();
}

Tensor gradient_to_add(Context& ctx, Parameter& parameter) {
  check_gradient(parameter);
  return parameter.grad->zero_if_unwritten(ctx.ops, ctx.stream);
}

Tensor as_dtype(Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor converted = ctx.temporaries.allocate(dtype, x.shape());
  ctx.ops.cast(x, converted, ctx.stream);
  return converted;
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape out = shape;
  out[out.rank() - 1] = last;
  return out;
}

}  // namespace gangway
