#include "train/manual.h"

#include <optional>

#include "nn/ids.h"
#include "parallel/collective_call.h"

namespace gangway {
namespace {

const char* no_sync(const Model& model) { return model.run().is_last_backward() ? "off" : "on"; }

// The text that must be equal on all ranks. Ranks that differ in it would run different collectives, now or
// in backward, or add gradients of different precisions.
std::string arguments_of(const Model& model, std::span<const Tensor> inputs, bool training) {
  std::string arguments =
      text("a forward ", training ? "with a frame (training)" : "without a frame (evaluation)", ", no_sync ",
           no_sync(model), ", inputs");
  for (const Tensor& input : inputs) arguments += text(" ", name(input.dtype()));
  return arguments;
}

void check_gradients(const Specs& outputs, std::span<const Tensor> dy) {
  if (dy.size() > outputs.size())
    fail(Code::invalid_argument, "backward got ", dy.size(), " gradients, forward made ", outputs.size(),
         " outputs");
  for (size_t i = 0; i < dy.size(); ++i)
    if (!(dy[i].shape() == outputs[i].shape) || !is_floating(dy[i].dtype()))
      fail(Code::invalid_argument, "output_grads[", i, "] is ", dy[i].text(), ", the output was ",
           outputs[i].text());
}

template <typename Allocate>
Tensor copy_of(Context& ctx, const Tensor& tensor, Allocate&& allocate) {
  const Tensor copy = allocate(tensor.dtype(), tensor.shape());
  ctx.ops.cast(tensor, copy, ctx.stream);
  return copy;
}

// Copies results for the caller, because the memory of frames and stacks is reused.
Values results_of(Context& ctx, const Values& values) {
  Values copies;
  for (const Tensor& value : values)
    copies.push_back(value ? copy_of(ctx, value,
                                     [&](DType dtype, const Shape& shape) {
                                       return Tensor::allocate(ctx.ops.device().allocator(), dtype, shape);
                                     })
                           : Tensor());
  return copies;
}

// Runs the collective part of a call; if it fails, resets `frame`, which may be null.
template <typename Run>
Values run_or_reset(const CollectiveCall& call, ManualFrame* frame, Run&& run) {
  try {
    return call.run(run);
  } catch (...) {
    if (frame != nullptr) frame->reset();
    throw;
  }
}

}  // namespace

ManualFrame::ManualFrame(std::shared_ptr<Model> model, const ManualOptions& options)
    : model_(std::move(model)), options_(options), frame_(model_->memory()) {
  frame_.id = {options_.step, options_.microbatch, 0};
}

void ManualFrame::reset() {
  forward_.reset();
  frame_.reset();
}

Context ManualFrame::context(Stream& stream) const {
  Context ctx = model_->run().context(stream);
  ctx.training = true;
  ctx.loss_scale = options_.loss_scale;
  ctx.step = options_.step;
  ctx.microbatch = options_.microbatch;
  return ctx;
}

Values manual_forward(Model& model, std::span<const Tensor> inputs, ManualFrame* frame, Stream& stream) {
  std::optional<Context> made;
  Frame* const saved = frame != nullptr ? &frame->frame_ : nullptr;
  std::string arguments;
  const CollectiveCall call(model.gangs(), "forward");
  const auto check = [&] {
    Context& ctx = made.emplace(frame != nullptr ? frame->context(stream) : model.run().context(stream));
    if (frame != nullptr && frame->awaits_backward())
      fail(Code::invalid_state,
           "frame has had a forward already; its backward or gw_frame_reset comes first");
    model.run().check_forward(ctx, specs_of(inputs), saved);
    check_ids(ctx, model.root().id_rules(), inputs);
    arguments = arguments_of(model, inputs, frame != nullptr);
  };
  call.check(check, arguments);
  const StackScope scope(model.temporaries());
  return run_or_reset(call, frame, [&] {
    Context& ctx = *made;
    Values own(inputs.begin(), inputs.end());
    if (frame != nullptr) {
      frame->forward_ = model.run().await_backward();
      // The frame lives on after the call, but the caller's arrays may not.
      for (Tensor& value : own)
        value = copy_of(ctx, value,
                        [&](DType dtype, const Shape& shape) { return saved->allocate(dtype, shape); });
    }
    const Values outputs = model.run().forward(ctx, own, saved);
    if (frame != nullptr) frame->outputs_ = specs_of(outputs);
    return results_of(ctx, outputs);
  });
}

Values manual_backward(ManualFrame& frame, std::span<const Tensor> dy, Stream& stream) {
  Model& model = *frame.model_;
  std::string arguments;
  const CollectiveCall call(model.gangs(), "backward");
  const auto check = [&] {
    if (!frame.awaits_backward())
      fail(Code::invalid_state, "frame has had no forward; gw_module_forward comes first");
    check_gradients(frame.outputs_, dy);
    arguments = text("a backward, no_sync ", no_sync(model));
  };
  call.check(check, arguments);
  const StackScope scope(model.temporaries());
  return run_or_reset(call, &frame, [&] {
    Context ctx = frame.context(stream);
    Values grads;
    for (const Tensor& gradient : dy)
      grads.push_back(copy_of(ctx, gradient, [&](DType dtype, const Shape& shape) {
        return frame.frame_.allocate_gradient(dtype, shape);
      }));
    const Values dx = results_of(ctx, model.run().backward(ctx, grads, frame.frame_));
    frame.reset();
    model.run().reshard();
    if (model.run().is_last_backward()) model.run().finish_gradients(stream);
    return dx;
  });
}

}  // namespace gangway
