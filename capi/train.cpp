#include <gangway/train.h>

#include <algorithm>
#include <cmath>

#include "batch.h"
#include "module_handle.h"
#include "train/generate.h"
#include "train/log_probs.h"
#include "train/step.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

// A view of host memory. The library reads it before the call returns.
Tensor host_rows_of(const gw_view* view, const char* name) {
  if (view == nullptr) return {};
  const Tensor rows = tensor_of(*view, *host_device(), name);
  return rows.contiguous() ? rows : dense_copy(rows, host_device()->allocator());
}

}  // namespace

Batch capi::batch_of(const gw_batch* batch, Stream& stream) {
  const gw_batch b = read_struct(&required(batch, "batch"), gw_batch_init, "batch");
  Batch r;
  r.inputs = tensors_of(b.inputs, b.input_count, stream, "batch.inputs");
  r.targets = tensors_of(b.targets, b.target_count, stream, "batch.targets");
  r.weight = b.weight;
  r.shift_labels = b.shift_labels != 0;
  r.documents = host_rows_of(b.documents, "batch.documents");
  r.positions = host_rows_of(b.positions, "batch.positions");
  if (b.token_weights != nullptr)
    r.token_weights = tensors_of(b.token_weights, 1, stream, "batch.token_weights").at(0);
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
  s.label_smoothing = o.label_smoothing;
  s.z_loss = o.z_loss;
  s.stop = o.stop != 0;
  s.replay = o.replay != 0;
  s.gradient_norms = o.gradient_norms != 0;
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
  r.weight = std::llround(s.weight);
  r.weight_sum = s.weight;
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

gw_status gw_module_gradient_norms(const gw_module* model, double out_norms[], size_t out_capacity,
                                   size_t* out_count) {
  return guarded([&] {
    out(out_count, "out_count") = 0;
    if (out_capacity > 0) required(out_norms, "out_norms");
    const std::vector<double>& norms = required(model, "model").ready().inspect().gradient_norms();
    *out_count = norms.size();
    if (out_capacity == 0) return;
    if (out_capacity < norms.size())
      fail(Code::invalid_argument, "out_capacity is ", out_capacity, ", the model has ", norms.size(),
           " parameters");
    std::copy(norms.begin(), norms.end(), out_norms);
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

gw_status gw_log_probs(gw_module* model, const gw_batch* batch, const gw_step_options* options, void* stream,
                       double out_log_probs[], size_t out_capacity, size_t* out_count) {
  return guarded([&] {
    if (out_count != nullptr) *out_count = 0;
    Model& m = required(model, "model").ready();
    Batch b;
    StepOptions s;
    Stream* ordered_on = &m.device().stream();
    CollectiveCall(m.gangs(), "log_probs").read([&] {
      out(out_count, "out_count");
      ordered_on = &EntryStream::of(m.device(), stream);
      b = batch_of(batch, *ordered_on);
      s = step_options_of(options);
      const Tensor labels = !b.targets.empty() ? b.targets[0] : b.inputs.empty() ? Tensor() : b.inputs[0];
      const size_t count = labels ? static_cast<size_t>(labels.count()) : 0;
      if (count > 0) required(out_log_probs, "out_log_probs");
      if (count > out_capacity)
        fail(Code::invalid_argument, "the batch has ", count, " labels, out_capacity is ", out_capacity);
    });
    const std::vector<double> made = log_probs(m, b, s, *ordered_on);
    std::copy(made.begin(), made.end(), out_log_probs);
    *out_count = made.size();
  });
}

void gw_generate_options_init(gw_generate_options* options, size_t size) {
  const GenerateOptions g;
  gw_generate_options d{};
  d.token_count = g.new_tokens;
  d.temperature = g.temperature;
  d.top_p = g.top_p;
  d.repetition_penalty = g.repetition_penalty;
  init_struct(options, size, d);
}

namespace {

GenerateOptions generate_options_of(const gw_generate_options* options) {
  const gw_generate_options o = read_struct(options, gw_generate_options_init, "options");
  if (o.token_count < 0) fail(Code::invalid_argument, "options.token_count is ", o.token_count);
  if (o.stop_count > 0) required(o.stop_tokens, "options.stop_tokens");
  GenerateOptions g;
  g.new_tokens = o.token_count;
  g.temperature = o.temperature;
  g.top_k = o.top_k;
  g.top_p = o.top_p;
  g.min_p = o.min_p;
  g.repetition_penalty = o.repetition_penalty;
  g.stop_tokens.assign(o.stop_tokens, o.stop_tokens + o.stop_count);
  g.seed = o.seed;
  if (o.on_token != nullptr)
    g.on_token = [call = o.on_token, user = o.user](size_t row, int64_t token) {
      int32_t stop = 0;
      run_callback("on_token", "generate",
                   [&] { return call(user, static_cast<int64_t>(row), token, &stop); });
      return stop == 0;
    };
  return g;
}

TokenRows rows_of(const int64_t* prompts, const int64_t* lengths, size_t row_count) {
  TokenRows rows;
  if (row_count > 0) required(lengths, "lengths");
  for (size_t row = 0; row < row_count; ++row) {
    if (lengths[row] < 0) fail(Code::invalid_argument, "lengths[", row, "] is ", lengths[row]);
    if (lengths[row] > 0) required(prompts, "prompts");
    rows.emplace_back(prompts, prompts + lengths[row]);
    prompts += lengths[row];
  }
  return rows;
}

void check_room(const GenerateOptions& options, size_t rows, const int64_t* out_tokens, size_t out_capacity) {
  const auto count = static_cast<uint64_t>(options.new_tokens);
  if (count > 0 && rows > 0) required(out_tokens, "out_tokens");
  if (rows > 0 && count > out_capacity / rows)
    fail(Code::invalid_argument, "options.token_count is ", options.new_tokens,
         rows == 1 ? "" : text(" for each of ", rows, " rows"), ", out_capacity ", out_capacity);
}

}  // namespace

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
      g = generate_options_of(options);
      if (prompt_count > 0) required(prompt, "prompt");
      check_room(g, 1, out_tokens, out_capacity);
      given = {prompt, prompt_count};
    });
    const std::vector<int64_t> tokens = generate(m, given, g, *ordered_on);
    std::copy(tokens.begin(), tokens.end(), out_tokens);
    *out_count = tokens.size();
  });
}

gw_status gw_generate_rows(gw_module* model, const int64_t* prompts, const int64_t* lengths, size_t row_count,
                           const gw_generate_options* options, void* stream, int64_t out_tokens[],
                           size_t out_capacity, int64_t out_counts[]) {
  return guarded([&] {
    Model& m = required(model, "model").ready();
    GenerateOptions g;
    TokenRows given;
    Stream* ordered_on = &m.device().stream();
    CollectiveCall(m.gangs(), "generate").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
      g = generate_options_of(options);
      given = rows_of(prompts, lengths, row_count);
      if (row_count > 0) required(out_counts, "out_counts");
      check_room(g, row_count, out_tokens, out_capacity);
    });
    const TokenRows made = generate(m, given, g, *ordered_on);
    for (size_t row = 0; row < made.size(); ++row) {
      int64_t* const place = out_tokens + row * static_cast<size_t>(g.new_tokens);
      std::fill_n(place, g.new_tokens, -1);
      std::copy(made[row].begin(), made[row].end(), place);
      out_counts[row] = static_cast<int64_t>(made[row].size());
    }
  });
}
