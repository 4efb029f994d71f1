#include <gangway/train.h>

#include "batch.h"
#include "module_handle.h"
#include "train/step.h"

using namespace gangway;
using namespace gangway::capi;

Batch capi::batch_of(const gw_batch* batch, Stream& stream) {
  const gw_batch b = read_struct(&required(batch, "batch"), gw_batch_init, "batch");
  Batch r;
  r.inputs = tensors_of(b.inputs, b.input_count, stream, "batch.inputs");
  r.targets = tensors_of(b.targets, b.target_count, stream, "batch.targets");
  r.weight = b.weight;
  r.shift_labels = b.shift_labels != 0;
  return r;
}

namespace {

StepOptions step_options_of(const gw_step_options* options) {
  const gw_step_options o = read_struct(options, gw_step_options_init, "options");
  StepOptions s;
  s.microbatches = o.microbatches;
  s.check_finite = o.allow_non_finite == 0;
  s.max_grad_norm = o.max_grad_norm;
  s.norm_type = o.norm_type;
  s.scale = o.scale;
  s.stop = o.stop != 0;
  return s;
}

gw_step_result result_of(const StepResult& s) {
  gw_step_result r{};
  r.loss = s.loss;
  r.grad_norm = s.grad_norm;
  r.tokens_per_second = s.tokens_per_second;
  r.seconds = s.seconds;
  r.wait_seconds = s.exposed_wait_seconds;
  r.lr = s.lr;
  r.weight = s.weight;
  r.step = s.step;
  r.loss_scale = s.loss_scale;
  r.tokens = s.tokens;
  r.stop = s.stop ? 1 : 0;
  r.skipped = s.skipped != Skip::none ? 1 : 0;
  switch (s.skipped) {
    case Skip::none: r.skip_reason = GW_SKIP_NONE; break;
    case Skip::no_weight: r.skip_reason = GW_SKIP_NO_WEIGHT; break;
    case Skip::non_finite: r.skip_reason = GW_SKIP_NON_FINITE; break;
  }
  return r;
}

}  // namespace

void gw_batch_init(gw_batch* batch, size_t size) {
  gw_batch d{};
  d.weight = -1;
  init_struct(batch, size, d);
}

void gw_step_options_init(gw_step_options* options, size_t size) {
  gw_step_options d{};
  d.microbatches = 1;
  d.norm_type = 2;
  d.scale = 1;
  init_struct(options, size, d);
}

void gw_step_result_init(gw_step_result* result, size_t size) { start_struct(result, size); }

gw_status gw_train_step(gw_module* model, gw_optimizer* optimizer, const gw_batch* batch,
                        const gw_step_options* options, void* stream, gw_step_result* result) {
  return guarded([&] {
    Model& m = required(model, "model").ready();
    Batch b;
    StepOptions s;
    Stream* ordered_on = &m.device().stream();
    CollectiveCall(m.gangs(), "train_step").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
      if (result != nullptr) check_out_struct(result, "result");
      b = batch_of(batch, *ordered_on);
      s = step_options_of(options);
      if (required(optimizer, "optimizer").model != model->model)
        fail(Code::invalid_argument, "optimizer was made for another model");
    });
    const StepResult r = train_step(m, optimizer->optimizer.get(), b, s, *ordered_on);
    if (result != nullptr) write_struct(result, result_of(r));
  });
}

gw_status gw_eval_step(gw_module* model, const gw_batch* batch, const gw_step_options* options, void* stream,
                       gw_step_result* result) {
  return guarded([&] {
    Model& m = required(model, "model").ready();
    Batch b;
    StepOptions s;
    Stream* ordered_on = &m.device().stream();
    CollectiveCall(m.gangs(), "eval_step").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
      check_out_struct(result, "result");
      b = batch_of(batch, *ordered_on);
      s = step_options_of(options);
    });
    const StepResult r = eval_step(m, b, s, *ordered_on);
    write_struct(result, result_of(r));
  });
}

gw_status gw_optimizer_step(gw_optimizer* optimizer, const gw_step_options* options, void* stream,
                            gw_step_result* result) {
  return guarded([&] {
    gw_optimizer& o = required(optimizer, "optimizer");
    StepOptions s;
    Stream* ordered_on = &o.model->device().stream();
    CollectiveCall(o.model->gangs(), "optimizer_step").read([&] {
      ordered_on = &EntryStream::of(o.model->device(), stream);
      if (result != nullptr) check_out_struct(result, "result");
      s = step_options_of(options);
    });
    const StepResult r = optimizer_step(*o.model, *o.optimizer, s, *ordered_on);
    if (result != nullptr) write_struct(result, result_of(r));
  });
}

gw_status gw_optimizer_swap_ema(gw_optimizer* optimizer, void* stream) {
  return guarded([&] {
    gw_optimizer& o = required(optimizer, "optimizer");
    Stream* ordered_on = &o.model->device().stream();
    CollectiveCall(o.model->gangs(), "swap_ema").read([&] {
      ordered_on = &EntryStream::of(o.model->device(), stream);
    });
    swap_ema(*o.model, *o.optimizer, *ordered_on);
  });
}

void gw_generate_options_init(gw_generate_options* options, size_t size) {
  const GenerateOptions g;
  gw_generate_options d{};
  d.token_count = g.new_tokens;
  d.temperature = g.temperature;
  init_struct(options, size, d);
}

gw_status gw_generate(gw_module* model, const int64_t* prompt, size_t prompt_count,
                      const gw_generate_options* options, void* stream, int64_t out_tokens[],
                      size_t out_capacity, size_t* out_count) {
  return guarded([&] {
    if (out_count != nullptr) *out_count = 0;
    Model& m = required(model, "model").ready();
    GenerateOptions g;
    std::span<const int64_t> given;
    Stream* ordered_on = &m.device().stream();
    CollectiveCall(m.gangs(), "generate").read([&] {
      out(out_count, "out_count");
      ordered_on = &EntryStream::of(m.device(), stream);
      const gw_generate_options o = read_struct(options, gw_generate_options_init, "options");
      if (prompt_count > 0) required(prompt, "prompt");
      if (o.token_count < 0) fail(Code::invalid_argument, "options.token_count is ", o.token_count);
      if (o.token_count > 0) required(out_tokens, "out_tokens");
      if (static_cast<uint64_t>(o.token_count) > out_capacity)
        fail(Code::invalid_argument, "options.token_count is ", o.token_count, ", out_capacity ",
             out_capacity);
      given = {prompt, prompt_count};
      g = {o.token_count, o.temperature, o.top_k, o.seed};
    });
    const std::vector<int64_t> tokens = generate(m, given, g, *ordered_on);
    std::copy(tokens.begin(), tokens.end(), out_tokens);
    *out_count = tokens.size();
  });
}
