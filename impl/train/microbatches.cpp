#include "train/microbatches.h"

#include <algorithm>

#include "base/interrupt.h"

namespace gangway {
namespace {

// Not training: without a frame, nothing is kept for a backward.
Frame* frame_of(Model& model, const Context& ctx) { return ctx.training ? &model.frame(0) : nullptr; }

// What the last module gives: {loss sum, weight}, [1] each.
struct Loss {
  double sum = 0, weight = 0;
};

void check_loss(const Specs& outputs) {
  if (outputs.size() != 2)
    fail(Code::invalid_argument, "the model gives ", outputs.size(),
         " outputs, a step needs {loss sum, weight}");
  for (const Spec& output : outputs)
    if (output.shape.count() != 1 || (output.dtype != DType::f64 && output.dtype != DType::f32))
      fail(Code::invalid_argument, "the model gives ", output.text(),
           ", loss sum and weight are f64 or f32 [1]");
}

Loss read_loss(const Values& outputs, const Context& ctx) {
  check_loss(specs_of(outputs));
  if (outputs[0].device().kind() == DeviceKind::meta)
    return {0, static_cast<double>(std::max<int64_t>(ctx.loss_weight, 0))};
  return {read_scalar(outputs[0], ctx.stream), read_scalar(outputs[1], ctx.stream)};
}

}  // namespace

Context microbatch_context(Model& model, int64_t step, bool training, Stream& stream) {
  Context ctx = model.context(stream);
  ctx.training = training;
  ctx.step = step;
  return ctx;
}

void check_microbatches(Model& model, const PreparedBatch& batch, Context ctx) {
  for (ctx.microbatch = 0; ctx.microbatch < batch.count(); ++ctx.microbatch) {
    const Microbatch part = batch.microbatch(ctx.microbatch);
    ctx.loss_weight = part.weight;
    const Specs outputs = model.check_forward(ctx, part.values, frame_of(model, ctx));
    if (!outputs.empty()) check_loss(outputs);
  }
}

Outcome run_microbatches(Model& model, const PreparedBatch& batch, Context ctx, double seed,
                         std::optional<Error>* refusal) {
  StackScope seeded(ctx.temporaries);
  ctx.loss_scale = ctx.temporaries.allocate(DType::f64, Shape{1});
  ctx.ops.fill(ctx.loss_scale, seed, ctx.stream);
  Outcome outcome;
  double weight = 0;
  bool known = true;  // on meta a loss says no weight
  for (int i = 0; i < batch.count(); ++i) {
    poll_interrupt_at_times();
    const Microbatch part = batch.microbatch(i);
    ctx.microbatch = i;
    ctx.loss_weight = part.weight;
    StackScope scope(ctx.temporaries);  // what a forward without a frame gives
    Frame* const frame = frame_of(model, ctx);
    if (frame != nullptr) {
      // Units that accumulate unsharded reduce once, after the last.
      model.set_is_last_backward(i + 1 == batch.count());
      frame->reset();
      frame->id = {ctx.step, i, 0};
    }
    const Values outputs = model.forward(ctx, part.values, frame);
    const Loss loss = read_loss(outputs, ctx);
    known = known && outputs[0].device().kind() != DeviceKind::meta;
    outcome.loss += loss.sum;
    weight += loss.weight;
    if (frame == nullptr) continue;
    model.backward(ctx, {}, *frame);  // no dy: the loss starts from its seed
    frame->reset();
  }
  // Integers below 2^53 (2^24 for a loss in f32) are exact, so plain equality is meant.
  if (known && weight != static_cast<double>(batch.weight()))
    *refusal = Error(Code::invalid_argument, text("the model's loss says weight ", weight, ", the batch has ",
                                                  batch.weight(), " (N is summed before the first forward)"));
  return outcome;
}

double read_scalar(const Tensor& tensor, Stream& stream) {
  Device& device = tensor.device();
  double wide = 0;
  float narrow = 0;
  void* to = tensor.dtype() == DType::f64 ? static_cast<void*>(&wide) : &narrow;
  device.copy(to, tensor.raw(), tensor.bytes(), stream);
  stream.synchronize();
  return tensor.dtype() == DType::f64 ? wide : narrow;
}

}  // namespace gangway
