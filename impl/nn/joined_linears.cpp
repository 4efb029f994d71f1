// Letters: T tokens, I inputs, N outputs of all layers together.
#include "nn/joined_linears.h"

#include <algorithm>

#include "device/gpu_plans.h"
#include "nn/gradient.h"
#include "nn/linear.h"

namespace gangway {
namespace {

// Returns the tensor of which the parts are rows, from the first to the last; absent: they are not.
Tensor joined_rows(std::span<const Tensor> parts) {
  const Tensor& first = parts[0];
  if (!first) return {};
  Shape shape = first.shape();
  shape[0] = 0;
  size_t end = first.byte_offset();
  for (const Tensor& part : parts) {
    if (part.buffer() != first.buffer() || part.dtype() != first.dtype() || part.byte_offset() != end ||
        part.shape().count_from(1) != first.shape().count_from(1) || !part.contiguous())
      return {};
    shape[0] += part.dim(0);
    end += part.bytes();
  }
  return Tensor(first.buffer(), first.byte_offset(), first.dtype(), shape);
}

using Which = Parameter* (*)(const Linear&);
Parameter* weight_of(const Linear& layer) { return &layer.weight(); }
Parameter* bias_of(const Linear& layer) { return layer.bias(); }

// Returns the values of all weights or biases as one tensor; absent: a layer has none, or they lie apart.
Tensor joined_values(const std::vector<Linear*>& layers, Which which) {
  std::vector<Tensor> values;
  for (const Linear* layer : layers) {
    const Parameter* const p = which(*layer);
    values.push_back(p == nullptr ? Tensor() : p->value);
  }
  return joined_rows(values);
}

bool has_bias(const Linear* layer) { return layer->bias() != nullptr; }
bool wants_any(const std::vector<Linear*>& layers, Which which) {
  return std::any_of(layers.begin(), layers.end(), [&](const Linear* layer) {
    const Parameter* const p = which(*layer);
    return p != nullptr && wants_gradient(*p);
  });
}

// Returns where to write the gradients of all weights or biases at once; absent: one is not wanted, they lie
// apart, or only some have a term already.
GradientTarget joined_gradient(const std::vector<Linear*>& layers, Which which) {
  std::vector<Tensor> gradients;
  bool written = false;
  for (const Linear* layer : layers) {
    const Parameter& p = *which(*layer);
    if (!wants_gradient(p) || p.grad == nullptr) return {};
    if (gradients.empty()) written = p.grad->written;
    if (p.grad->written != written) return {};
    gradients.push_back(p.grad->tensor);
  }
  const Tensor all = joined_rows(gradients);
  if (!all) return {};
  for (const Linear* layer : layers) gradient_to_write(*which(*layer));
  return {all, written};
}

// Calls visit(layer, its columns of y) for each layer.
template <typename Visit>
void for_each_part(const std::vector<Linear*>& layers, const Tensor& y, const Visit& visit) {
  int64_t first = 0;
  for (Linear* layer : layers) {
    const int64_t last = first + layer->weight().compute_shape()[0];
    visit(*layer, columns(y, first, last));
    first = last;
  }
}

// The operation takes whole rows, so that gradients that lie apart are parts of a sum that it makes first.
void add_bias_gradients(Context& ctx, const std::vector<Linear*>& layers, const Tensor& dy_TN) {
  if (!wants_any(layers, bias_of)) return;
  const StackScope scope(ctx.temporaries);
  GradientTarget all = joined_gradient(layers, bias_of);
  const bool apart = !all.grad;
  if (apart) all.grad = ctx.temporaries.allocate(statistics_dtype(dy_TN.dtype()), Shape{dy_TN.dim(1)});
  if (apart || !all.accumulate) ctx.ops.fill(all.grad, 0, ctx.stream);
  ctx.ops.column_sum(dy_TN, all.grad, ctx.stream);
  if (!apart) return;
  for_each_part(layers, all.grad, [&](const Linear& layer, const Tensor& sum) {
    if (wants_gradient(*layer.bias())) ctx.ops.add(sum, 1, gradient_to_add(ctx, *layer.bias()), ctx.stream);
  });
}

}  // namespace

std::vector<Linear*> JoinedLinears::layers() const {
  std::vector<Linear*> all;
  for (const size_t child : children_) {
    auto* const linear = dynamic_cast<Linear*>(&owner_.child(child));
    if (linear == nullptr) return {};
    all.push_back(linear);
  }
  return all;
}

std::string JoinedLinears::name() const {
  std::string all = owner_.full_name();
  for (size_t i = 0; i < children_.size(); ++i)
    all += (i > 0 ? "+" : all.empty() ? "" : ".") + owner_.children()[children_[i]].name;
  return all;
}

bool JoinedLinears::can_join(const Context& ctx, const Tensor& x) const {
  if (!is_or_plans_for_gpu(ctx.ops.device())) return false;
  const std::vector<Linear*> layers = this->layers();
  if (layers.empty()) return false;
  for (const Linear* layer : layers)
    if (layer->lora() != nullptr || layer->fp8() != nullptr || layer->skips_bias_add()) return false;
  const Tensor w_NI = joined_values(layers, weight_of);
  if (!w_NI || x.rank() < 1 || x.dtype() != w_NI.dtype() || x.dim(-1) != w_NI.dim(1)) return false;
  return joined_values(layers, bias_of) || std::none_of(layers.begin(), layers.end(), has_bias);
}

int64_t JoinedLinears::width(size_t i) const { return layers().at(i)->weight().compute_shape()[0]; }

Tensor JoinedLinears::forward(Context& ctx, const Tensor& x, Frame* frame) const {
  const std::string name = ctx.tracer == nullptr ? std::string() : this->name();
  const TraceSpan span{ctx.tracer, TraceRow::compute, ctx.recomputing ? "recompute" : "forward", name};
  const std::vector<Linear*> layers = this->layers();
  const Tensor w_NI = joined_values(layers, weight_of), b_N = joined_values(layers, bias_of);
  const Tensor y = make_output(ctx, frame, x.dtype(), with_last(x.shape(), w_NI.dim(0)));
  const Tensor x_TI = x.flatten2(), y_TN = y.flatten2();
  const auto multiply = [&](int64_t first, int64_t last) {
    ctx.ops.gemm({.a = x_TI.slice(0, first, last),
                  .b = w_NI,
                  .c = y_TN.slice(0, first, last),
                  .bias = b_N,
                  .transpose_b = true},
                 ctx.stream);
  };
  if (ctx.arriving != nullptr && ctx.arriving->holds(x)) {
    for (auto part = ctx.arriving->next(ctx); !part.empty(); part = ctx.arriving->next(ctx))
      for (const auto& [first, last] : part) multiply(first, last);
  } else {
    multiply(0, x_TI.dim(0));
  }
  if (frame != nullptr) frame->slots().save(owner_, slot_, x);
  return y;
}

bool JoinedLinears::joined(const Frame& frame) const { return frame.slots().holds(owner_, slot_); }

Tensor JoinedLinears::backward(Context& ctx, const Tensor& dy, Frame& frame) const {
  const std::string name = ctx.tracer == nullptr ? std::string() : this->name();
  const TraceSpan span{ctx.tracer, TraceRow::compute, "backward", name};
  const std::vector<Linear*> layers = this->layers();
  const int64_t inputs = value_of(layers.at(0)->weight()).dim(1);
  const Tensor dx = frame.allocate_gradient(dy.dtype(), with_last(dy.shape(), inputs));
  const Tensor dy_TN = dy.flatten2(), dx_TI = dx.flatten2();
  bool accumulate = false;
  const auto multiply = [&](const Tensor& dy_part, const Tensor& w) {
    ctx.ops.gemm({.a = dy_part, .b = w, .c = dx_TI, .bias = {}, .accumulate = accumulate}, ctx.stream);
    accumulate = true;
  };
  if (const Tensor w_NI = joined_values(layers, weight_of))
    multiply(dy_TN, w_NI);
  else  // the values have moved since forward
    for_each_part(layers, dy_TN,
                  [&](const Linear& layer, const Tensor& part) { multiply(part, value_of(layer.weight())); });
  const bool wants_weights = wants_any(layers, weight_of);
  if (wants_weights) frame.slots().prepare(ctx, owner_, slot_);
  if (wants_weights || wants_any(layers, bias_of)) frame.push_weight(owner_, task_, dy);
  return dx;
}

void JoinedLinears::backward_weight(Context& ctx, Frame& frame, const Tensor& dy) const {
  const std::vector<Linear*> layers = this->layers();
  const Tensor dy_TN = dy.flatten2();
  if (wants_any(layers, weight_of)) {
    const Tensor x_TI = frame.slots().load(ctx, owner_, slot_).flatten2();
    if (const GradientTarget all = joined_gradient(layers, weight_of); all.grad)
      add_outer(ctx, dy_TN, x_TI, all);
    else
      for_each_part(layers, dy_TN, [&](const Linear& layer, const Tensor& part) {
        if (wants_gradient(layer.weight())) add_outer(ctx, part, x_TI, gradient_to_write(layer.weight()));
      });
  }
  add_bias_gradients(ctx, layers, dy_TN);
}

Tensor columns(const Tensor& x, int64_t first, int64_t last) { return x.slice(x.rank() - 1, first, last); }

Tensor joined_columns(std::span<const Tensor> parts) {
  const Tensor& first = parts[0];
  int64_t width = 0;
  for (const Tensor& part : parts) width += part.dim(-1);
  const Shape shape = with_last(first.shape(), width);
  if (first.byte_offset() + static_cast<size_t>(shape.count()) * item_bytes(first.dtype()) >
      first.buffer()->bytes())
    return {};
  const Tensor all(first.buffer(), first.byte_offset(), first.dtype(), shape);
  int64_t at = 0;
  for (const Tensor& part : parts) {
    const Tensor here = columns(all, at, at + part.dim(-1));
    if (part.buffer() != here.buffer() || part.dtype() != here.dtype() || !(part.shape() == here.shape()) ||
        part.byte_offset() != here.byte_offset())
      return {};
    for (int i = 0; i < part.rank(); ++i)
      if (part.dim(i) > 1 && part.stride(i) != here.stride(i)) return {};
    at += part.dim(-1);
  }
  return all;
}

}  // namespace gangway
