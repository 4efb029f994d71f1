#include "parallel/fsdp/fully_sharded_module.h"

#include "base/interrupt.h"
#include "nn/custom.h"
#include "nn/gradient.h"

namespace gangway {
namespace {

constexpr DType kNoCast = DType{};

// Returns the weight of the first product of `module`, whose dtype is the dtype in which the module computes,
// or null. Products in nested parameter groups and in custom modules, which compute by themselves, do not
// count.
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

FullyShardedModule::FullyShardedModule(ModulePtr inner, std::shared_ptr<ParameterGroup> group,
                                       std::shared_ptr<FsdpState> state)
    : state_(std::move(state)), group_(std::move(group)), product_(first_product(*inner)) {
  group_->set_read_in_backward(inner->backward_reads_values());
  add_child("", std::move(inner));
}

DType FullyShardedModule::input_dtype(DType given) const {
  const ShardOptions& options = group_->options();
  const bool mixed = options.param_dtype != kNoCast || !options.dtype_rules.empty();
  const DType compute = product_ != nullptr ? spec_of(*product_).dtype : options.param_dtype;
  const bool casts = options.cast_forward_inputs && mixed && compute != kNoCast;
  return casts && is_floating(given) ? compute : given;
}

// Casts only outputs in the compute dtype. A loss and its weight are f64 and stay f64.
DType FullyShardedModule::output_dtype(DType made) const {
  const ShardOptions& options = group_->options();
  if (options.output_dtype == kNoCast || !is_floating(made)) return made;
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
    // A later module may read the output in backward when these weights are resharded, so the frame must keep
    // the value instead of recomputing it.
    if (frame != nullptr) y = frame->slots().kept(ctx, y);
    if (!y || output_dtype(y.dtype()) == y.dtype()) continue;
    const Tensor to = make_output(ctx, frame, output_dtype(y.dtype()), y.shape());
    ctx.ops.cast(y, to, ctx.stream);
    y = to;
  }
  return outputs;
}

Values FullyShardedModule::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  poll_interrupt_throttled();
  const bool was_unsharded = group_->unsharded();
  const bool scheduled = group_->scheduled();
  const bool keep =
      was_unsharded || scheduled || (!group_->reshards_after_forward() && (frame != nullptr || ctx.training));
  if (!scheduled) state_->unshard(*group_, true, ctx.stream);
  try {
    Context inner = ctx;
    if (output_dtype(DType::f64) != DType::f64) inner.fused_loss = false;  // the loss is cast below
    Values outputs = child(0).forward(inner, cast_inputs(ctx, inputs, frame), frame);
    if (!keep && frame != nullptr && group_->read_in_backward())
      group_->reshard_after_forward(state_->is_last(*group_), ctx.stream);
    else if (!keep)
      group_->reshard();
    return cast_outputs(ctx, std::move(outputs), frame);
  } catch (...) {
    if (!was_unsharded) group_->reshard();
    throw;
  }
}

Values FullyShardedModule::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  if (ctx.defer_weight && !group_->accumulates_unsharded())
    fail(Code::invalid_state, "parameter group ", group_->name(),
         ": deferred weight halves need accumulate_unsharded, since its full gradients are shared with other "
         "parameter groups");
  poll_interrupt_throttled();
  const bool scheduled = group_->scheduled();
  if (!scheduled) state_->unshard(*group_, false, ctx.stream);
  try {
    group_->gradients().acquire(ctx.stream);
    const Frame::Seen& seen = frame.seen(*this);
    Values grads(dy.begin(), dy.end());
    for (size_t i = 0; i < grads.size() && i < seen.outputs.size(); ++i)
      grads[i] = cast_gradient(ctx, grads[i], seen.outputs[i], frame);
    Values dx = child(0).backward(ctx, grads, frame);
    if (!ctx.defer_weight) frame.run_weight_gradients(ctx);
    if (!ctx.defer_weight && !scheduled)
      group_->gradients().weight_half_done(state_->is_last_backward(), ctx.stream);
    if (!scheduled) group_->reshard();
    for (size_t i = 0; i < dx.size() && i < seen.inputs.size(); ++i)
      dx[i] = cast_gradient(ctx, dx[i], seen.inputs[i], frame);
    return dx;
  } catch (...) {
    group_->reshard();
    throw;
  }
}

}  // namespace gangway
