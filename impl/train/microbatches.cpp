#include "train/microbatches.h"

#include "base/interrupt.h"

namespace gangway {
namespace {

// Without training there is no backward, so that no frame is needed.
Frame* frame_of(Model& model, const Context& ctx) { return ctx.training ? &model.frame(0) : nullptr; }

// The outputs of the last module must be {loss sum, weight}, [1] each.
void check_loss(const Specs& outputs) {
  if (outputs.size() != 2)
    fail(Code::invalid_argument, "the model gives ", outputs.size(),
         " outputs, a step needs {loss sum, weight}");
  for (const Spec& output : outputs)
    if (output.shape.count() != 1 || (output.dtype != DType::f64 && output.dtype != DType::f32))
      fail(Code::invalid_argument, "the model gives ", output.text(),
           ", loss sum and weight are f64 or f32 [1]");
}

std::vector<Values> all_microbatches(const PreparedBatch& batch) {
  std::vector<Values> all;
  for (int i = 0; i < batch.count(); ++i) all.push_back(batch.microbatch(i));
  return all;
}
std::vector<Specs> all_specs(const PreparedBatch& batch) {
  std::vector<Specs> all;
  for (const Values& microbatch : all_microbatches(batch)) all.push_back(specs_of(microbatch));
  return all;
}

// Sets the rows of the context's microbatch, and its documents, if the batch gives some. `first_row`: the
// place of the batch's first row in the global batch.
void set_rows(const PreparedBatch& batch, int64_t first_row, Context& ctx) {
  const int64_t first = batch.first_row(ctx.microbatch), end = batch.first_row(ctx.microbatch + 1);
  ctx.first_row = first_row + first;
  ctx.rows = static_cast<int>(end - first);
  if (!batch.documents().empty()) ctx.documents = &batch.documents()[static_cast<size_t>(ctx.microbatch)];
}

struct SumsOfLosses final : LossSink {
  explicit SumsOfLosses(StepSums& sums) : sums(sums) {}
  void add(const Values& outputs) override {
    check_loss(specs_of(outputs));
    sums.add_loss(outputs);
  }
  StepSums& sums;
};

}  // namespace

int microbatches_of(Model& model, int asked) {
  return model.pipeline() == nullptr ? asked : model.pipeline()->microbatches(asked);
}

Context microbatch_context(Model& model, int64_t step, bool training, Stream& stream) {
  Context ctx = model.run().context(stream);
  ctx.training = training;
  ctx.step = step;
  return ctx;
}

bool check_microbatches(Model& model, const PreparedBatch& batch, Context ctx) {
  if (model.pipeline() != nullptr) return model.pipeline()->check(ctx, all_specs(batch));
  const int64_t first_row = ctx.first_row;
  for (ctx.microbatch = 0; ctx.microbatch < batch.count(); ++ctx.microbatch) {
    set_rows(batch, first_row, ctx);
    const Specs inputs = specs_of(batch.microbatch(ctx.microbatch));
    const Specs outputs = model.run().check_forward(ctx, inputs, frame_of(model, ctx));
    if (!outputs.empty()) check_loss(outputs);
  }
  return true;
}

void exchange_stage_shapes(Model& model, const PreparedBatch& batch, Context ctx) {
  model.pipeline()->exchange_specs(ctx, all_specs(batch), check_loss);
}

void run_microbatches(Model& model, const PreparedBatch& batch, Context ctx, StepSums& sums) {
  ctx.fused_loss = true;
  const int64_t first_row = ctx.first_row;
  if (model.pipeline() != nullptr) {
    SumsOfLosses losses(sums);
    return model.pipeline()->run(ctx, all_microbatches(batch), model.recompute(), losses, batch.documents());
  }
  for (int i = 0; i < batch.count(); ++i) {
    poll_interrupt_throttled();
    ctx.microbatch = i;
    set_rows(batch, first_row, ctx);
    const StackScope scope(ctx.temporaries);  // frees the outputs of a forward without a frame
    Frame* const frame = frame_of(model, ctx);
    if (frame != nullptr) {
      // Parameter groups that accumulate unsharded gradients reduce them once, in the last backward.
      model.run().set_is_last_backward(i + 1 == batch.count());
      frame->reset();
      frame->id = {ctx.step, i, 0};
    }
    const Values outputs = model.run().forward(ctx, batch.microbatch(i), frame);
    check_loss(specs_of(outputs));
    if (frame != nullptr) model.run().backward(ctx, {}, *frame);  // no dy: a loss starts from ctx.loss_scale
    sums.add_loss(outputs);                                       // after backward, which makes a fused loss
    if (frame != nullptr) frame->reset();
  }
}

void run_log_probs(Model& model, const PreparedBatch& batch, Context ctx, LossSink& outputs) {
  ctx.log_probs = true;
  if (model.pipeline() != nullptr)
    return model.pipeline()->run(ctx, all_microbatches(batch), model.recompute(), outputs, batch.documents());
  const int64_t first_row = ctx.first_row;
  for (ctx.microbatch = 0; ctx.microbatch < batch.count(); ++ctx.microbatch) {
    poll_interrupt_throttled();
    set_rows(batch, first_row, ctx);
    const StackScope scope(ctx.temporaries);
    outputs.add(model.run().forward(ctx, batch.microbatch(ctx.microbatch), nullptr));
  }
}

}  // namespace gangway
