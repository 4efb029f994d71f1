#include "parallel/fsdp/fully_sharded_module.h"

#include "base/interrupt.h"
#include "nn/custom.h"
#include "nn/gradient.h"

namespace gangway {
namespace {

constexpr DType kNone = DType{};

// What says in which dtype `module` computes: the weight of its first product, outside of nested units and of
// custom modules, which compute themselves. Null: none.
ParameterPtr first_product(const Module& module) {
  if (dynamic_cast<const FullyShardedModule*>(&module) != nullptr ||
      dynamic_cast<const Custom*>(&module) != nullptr)
    return nullptr;
  if (module.is_linear()) return module.parameters()[0];
  for (const Module::Child& child : module.children())
    if (ParameterPtr found = first_product(*child.module)) return found;
  return nullptr;
}

Tensor cast_gradient(Context& ctx, const Tensor& from, DType to, Frame& frame) {
  if (!from || from.dtype() == to) return from;
  const Tensor out = frame.allocate_gradient(to, from.shape());
  ctx.ops.cast(from, out, ctx.stream);
  return out;
}

}  // namespace

FullyShardedModule::FullyShardedModule(ModulePtr inner, std::shared_ptr<ParamGroup> unit,
                                       std::shared_ptr<FsdpState> domain)
    : domain_(std::move(domain)), unit_(std::move(unit)), product_(first_product(*inner)) {
  unit_->set_read_in_backward(inner->backward_reads_values());
  add_child("", std::move(inner));
}

DType FullyShardedModule::input_dtype(DType given) const {
  const ShardOptions& options = unit_->options();
  const bool mixed = options.param_dtype != kNone || !options.dtype_rules.empty();
  const DType compute = product_ != nullptr ? spec_of(*product_).dtype : options.param_dtype;
  const bool casts = options.cast_forward_inputs && mixed && compute != kNone;
  return casts && is_floating(given) ? compute : given;
}

// Only what was computed in the compute dtype; a loss and its weight are f64 and stay so.
DType FullyShardedModule::output_dtype(DType made) const {
  const ShardOptions& options = unit_->options();
  if (options.output_dtype == kNone || !is_floating(made)) return made;
  return made == DType::f64 && options.param_dtype != DType::f64 ? made : options.output_dtype;
}

Specs FullyShardedModule::check_forward(Context& ctx, std::span<const Spec> inputs) {
  Specs cast(inputs.begin(), inputs.end());
  for (Spec& x : cast)
    if (const DType to = input_dtype(x.dtype); to != x.dtype) x = {to, x.shape};
  Specs outputs = child(0).check_forward(ctx, cast);
  for (Spec& y : outputs) y.dtype = output_dtype(y.dtype);
  return outputs;
}

Values FullyShardedModule::cast_inputs(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  Values out(inputs.begin(), inputs.end());
  if (frame != nullptr) frame->seen(*this).inputs = dtypes_of(inputs);
  for (Tensor& x : out) {
    if (!x || input_dtype(x.dtype()) == x.dtype()) continue;
    const Tensor to = make_output(ctx, frame, input_dtype(x.dtype()), x.shape());
    ctx.ops.cast(x, to, ctx.stream);
    x = to;
  }
  return out;
}

Values FullyShardedModule::cast_outputs(Context& ctx, Values outputs, Frame* frame) {
  if (frame != nullptr) frame->seen(*this).outputs = dtypes_of(outputs);
  for (Tensor& y : outputs) {
    // Others read it when the unit's weights may be gone, with which it would be made again.
    if (frame != nullptr) y = frame->kept(ctx, y);
    if (!y || output_dtype(y.dtype()) == y.dtype()) continue;
    const Tensor to = make_output(ctx, frame, output_dtype(y.dtype()), y.shape());
    ctx.ops.cast(y, to, ctx.stream);
    y = to;
  }
  return outputs;
}

Values FullyShardedModule::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  poll_interrupt_at_times();
  const bool was_unsharded = unit_->unsharded();
  const bool scheduled = unit_->scheduled();
  const bool keep =
      was_unsharded || scheduled || (!unit_->reshards_after_forward() && (frame != nullptr || ctx.training));
  if (!scheduled) domain_->unshard(*unit_, true, ctx.stream);
  try {
    Context inner = ctx;
    if (output_dtype(DType::f64) != DType::f64) inner.fused_loss = false;  // a loss is cast here
    Values outputs = child(0).forward(inner, cast_inputs(ctx, inputs, frame), frame);
    if (!keep && frame != nullptr && unit_->read_in_backward())
      unit_->reshard_after_forward(domain_->is_last(*unit_), ctx.stream);
    else if (!keep)
      unit_->reshard();
    return cast_outputs(ctx, std::move(outputs), frame);
  } catch (...) {
    if (!was_unsharded) unit_->reshard();
    throw;
  }
}

Values FullyShardedModule::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  if (ctx.defer_weight && !unit_->accumulates_unsharded())
    fail(Code::invalid_state, "unit ", unit_->name(),
         ": deferred weight halves need accumulate_unsharded, since its full gradients are shared with other "
         "units");
  poll_interrupt_at_times();
  const bool scheduled = unit_->scheduled();
  if (!scheduled) domain_->unshard(*unit_, false, ctx.stream);
  try {
    unit_->gradients().acquire(ctx.stream);
    const Frame::Seen& seen = frame.seen(*this);
    Values grads(dy.begin(), dy.end());
    for (size_t i = 0; i < grads.size() && i < seen.outputs.size(); ++i)
      grads[i] = cast_gradient(ctx, grads[i], seen.outputs[i], frame);
    Values dx = child(0).backward(ctx, grads, frame);
    if (!ctx.defer_weight) frame.run_weight_gradients(ctx);
    if (!ctx.defer_weight && !scheduled)
      unit_->gradients().weight_half_done(domain_->is_last_backward(), ctx.stream);
    if (!scheduled) unit_->reshard();
    for (size_t i = 0; i < dx.size() && i < seen.inputs.size(); ++i)
      dx[i] = cast_gradient(ctx, dx[i], seen.inputs[i], frame);
    return dx;
  } catch (...) {
    unit_->reshard();
    throw;
  }
}

}  // namespace gangway
