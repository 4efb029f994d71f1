// One training step, top to bottom. Read train_step first: it is the whole story in seven parts; what each
// part does stands below it, in the same order.
//
// Three rules hold it together:
//
// - Gradients are sums, everywhere. Backward starts from 1/N, where N is the number of items that count on
//   all ranks and in all microbatches, so the sum over microbatches and ranks already is the gradient of the
//   mean loss. Nothing else divides, and ranks or microbatches of different weight need no care.
// - Until the check phase ends nothing has moved: a refusal is thrown alike on all ranks and the gangs work
//   on. After it, whatever fails on one rank breaks every gang of the model, because its peers already wait
//   in collectives for it; they get the failing rank's error.
// - Every decision that changes which collectives run (skip or not, how to clip) is made from numbers that
//   are equal on all ranks.
#include "train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "parallel/model/clip.h"
#include "parallel/or_abort.h"
#include "train/agreement.h"
#include "train/microbatches.h"

namespace gangway {
namespace {

using Clock = std::chrono::steady_clock;

void check_options(const StepOptions& options);
void check_optimizer(Model& model, const Optimizer& optimizer);
std::string said(const char* call, const StepOptions& options);
bool gradients_finite(Model& model, Stream& stream);
void update(Model& model, Optimizer& optimizer, const StepOptions& options, bool finite, Stream& stream,
            StepResult& result);
void measure(Model& model, Clock::time_point start, int64_t waited_ns, int64_t tokens, StepResult& result);

// Without a clip, whose norm would show it, somebody has to look whether gradients are finite. The largest of
// several numbers shows no NaN either.
bool needs_finite_flag(const StepOptions& options) {
  return options.check_finite && (options.max_grad_norm == 0 || std::isinf(options.norm_type));
}

}  // namespace

StepResult train_step(Model& model, Optimizer* given, const Batch& batch, const StepOptions& options,
                      Stream& stream, const std::optional<Error>& callers) {
  const Clock::time_point start = Clock::now();
  Gangs& gangs = model.gangs();
  const int64_t waited_ns = gangs.root()->owner()->waited_ns();
  StackScope scope(model.temporaries());  // the shifted labels, for the whole step
  StepResult result;

  // 1. Check phase. Everything that a caller can get wrong is looked at before anything moves.
  std::optional<PreparedBatch> prepared;
  std::string words;
  const std::optional<Error> refusal = refusal_of([&] {
    words = said("train_step", options);
    if (callers) throw *callers;
    model.check_trainable("train_step");
    model.check_computes("train_step");
    check_options(options);
    if (options.scale != 1)
      fail(Code::invalid_argument, "train_step: scale = ", options.scale,
           ", but the step seeds with 1/N (scale is for ", "loops of your own)");
    if (given == nullptr) fail(Code::invalid_argument, "train_step: optimizer is null");
    check_optimizer(model, *given);
    model.check_gradients("train_step");
    prepared.emplace(model, batch, options.microbatches, stream);
    check_microbatches(model, *prepared, microbatch_context(model, given->steps() + 1, true, stream));
  });

  // 2. One small collective ends it: each rank's verdict, and N, the sum of the weights.
  const Totals mine = prepared ? Totals{prepared->weight(), prepared->tokens()} : Totals{};
  const Totals totals = agree(gangs, refusal, words, mine);
  Optimizer& optimizer = *given;
  result.weight = totals.weight;
  result.lr = optimizer.lr();
  result.step = optimizer.steps();
  if (totals.weight == 0) {  // on every rank: there is no mean to learn from
    result.skipped = Skip::no_weight;
    measure(model, start, waited_ns, totals.tokens, result);
    return result;
  }

  // 3. Forward and backward of each microbatch, seeded with 1/N, then what of the gradients is still on its
  //    way: the reductions that accumulate unsharded, and those over replicas.
  std::optional<Error> wrong_weight;
  const Outcome own = or_abort(gangs, "train_step", [&] {
    const Context ctx = microbatch_context(model, optimizer.steps() + 1, true, stream);
    Outcome outcome =
        run_microbatches(model, *prepared, ctx, 1 / static_cast<double>(totals.weight), &wrong_weight);
    model.reshard();
    model.finish_gradients(stream);
    if (needs_finite_flag(options)) outcome.finite = gradients_finite(model, stream);
    return outcome;
  });

  // 4. The second small collective: the loss, the finite flag where no norm will tell, and a loss whose
  //    weight was not the one that went into N (then 1/N was wrong on every rank, and nobody steps).
  Outcome all;
  try {
    all = exchange(gangs, wrong_weight, own);
  } catch (const Error&) {
    if (!gangs.root()->error()) model.zero_gradients(stream);
    throw;
  }
  result.loss = all.loss / static_cast<double>(totals.weight);

  // 5. to 7. Norm and clip, the fence around the optimizer's work, the result.
  or_abort(gangs, "train_step", [&] { update(model, optimizer, options, all.finite, stream, result); });
  measure(model, start, waited_ns, totals.tokens, result);
  return result;
}

StepResult eval_step(Model& model, const Batch& batch, const StepOptions& options, Stream& stream,
                     const std::optional<Error>& callers) {
  const Clock::time_point start = Clock::now();
  Gangs& gangs = model.gangs();
  const int64_t waited_ns = gangs.root()->owner()->waited_ns();
  StackScope scope(model.temporaries());
  std::optional<PreparedBatch> prepared;
  std::string words;
  const std::optional<Error> refusal = refusal_of([&] {
    words = said("eval_step", options);
    if (callers) throw *callers;
    model.check_trainable("eval_step");
    model.check_computes("eval_step");
    check_options(options);
    prepared.emplace(model, batch, options.microbatches, stream);
    check_microbatches(model, *prepared, microbatch_context(model, 0, false, stream));
  });
  const Totals mine = prepared ? Totals{prepared->weight(), prepared->tokens()} : Totals{};
  const Totals totals = agree(gangs, refusal, words, mine);
  StepResult result;
  result.weight = totals.weight;
  if (totals.weight == 0) {
    result.skipped = Skip::no_weight;
    measure(model, start, waited_ns, totals.tokens, result);
    return result;
  }
  std::optional<Error> wrong_weight;
  const Outcome own = or_abort(gangs, "eval_step", [&] {
    return run_microbatches(model, *prepared, microbatch_context(model, 0, false, stream), 1, &wrong_weight);
  });
  result.loss = exchange(gangs, wrong_weight, own).loss / static_cast<double>(totals.weight);
  measure(model, start, waited_ns, totals.tokens, result);
  return result;
}

StepResult optimizer_step(Model& model, Optimizer& optimizer, const StepOptions& options, Stream& stream,
                          const std::optional<Error>& callers) {
  const Clock::time_point start = Clock::now();
  Gangs& gangs = model.gangs();
  const int64_t waited_ns = gangs.root()->owner()->waited_ns();
  std::string words;
  const std::optional<Error> refusal = refusal_of([&] {
    words = said("optimizer_step", options);
    if (callers) throw *callers;
    model.check_trainable("optimizer_step");
    check_options(options);
    check_optimizer(model, optimizer);
    model.check_gradients("optimizer_step");
    model.check_update();
  });
  agree(gangs, refusal, words, Totals{});
  StepResult result;
  result.lr = optimizer.lr();
  result.step = optimizer.steps();
  Outcome flag;
  or_abort(gangs, "optimizer_step", [&] {
    model.finish_gradients(stream);
    if (needs_finite_flag(options)) flag.finite = gradients_finite(model, stream);
  });
  if (needs_finite_flag(options)) flag = exchange(gangs, std::nullopt, flag);
  or_abort(gangs, "optimizer_step", [&] { update(model, optimizer, options, flag.finite, stream, result); });
  measure(model, start, waited_ns, 0, result);
  return result;
}

namespace {

// --- 1. check phase

void check_options(const StepOptions& options) {
  if (options.microbatches < 1)
    fail(Code::invalid_argument, "step.microbatches = ", options.microbatches, " is below 1");
  if (!(std::isfinite(options.max_grad_norm) && options.max_grad_norm >= 0))
    fail(Code::invalid_argument, "step.max_grad_norm = ", options.max_grad_norm,
         " is not a finite number >= 0");
  if (!(options.norm_type > 0))  // infinity is the norm of the largest
    fail(Code::invalid_argument, "step.norm_type = ", options.norm_type, " is not over 0");
  if (!std::isfinite(options.scale))
    fail(Code::invalid_argument, "step.scale = ", options.scale, " is not finite");
}

void check_optimizer(Model& model, const Optimizer& optimizer) {
  const auto same = [](const NamedParameter& a, const NamedParameter& b) {
    return a.parameter == b.parameter;
  };
  if (!std::equal(model.parameters().begin(), model.parameters().end(), optimizer.parameters().begin(),
                  optimizer.parameters().end(), same))
    fail(Code::invalid_argument, "train: the optimizer was made for the parameters of another model");
}

// Ranks that differ in any of this would run different collectives.
std::string said(const char* call, const StepOptions& options) {
  return text(call, " with microbatches ", options.microbatches, ", max_grad_norm ", options.max_grad_norm,
              ", norm_type ", options.norm_type, ", check_finite ", options.check_finite, ", scale ",
              options.scale);
}

// --- 3. after the microbatches

// Of this rank's shards: the sum of magnitudes is finite where all of them are.
bool gradients_finite(Model& model, Stream& stream) {
  if (model.device().kind() == DeviceKind::meta) return true;
  StackScope scope(model.temporaries());
  const Tensor sum = model.temporaries().allocate(DType::f64, Shape{1});
  model.ops().fill(sum, 0, stream);
  for (const NamedParameter& named : model.parameters()) {
    const Parameter& p = *named.parameter;
    if (!p.trainable || !p.shard_grad || !p.shard_grad_written || p.shard_grad.count() == 0) continue;
    model.ops().norm_power(p.shard_grad.reshape(Shape{p.shard_grad.count()}), 1, sum, stream);
  }
  return std::isfinite(read_scalar(sum, stream));
}

// --- 5. to 7. the update

void update(Model& model, Optimizer& optimizer, const StepOptions& options, bool finite, Stream& stream,
            StepResult& result) {
  // 5. The norm of the whole gradient (one scalar summed over the mesh) and the factor that brings it down to
  //    the most that is allowed.
  double clip = 1;
  if (options.max_grad_norm > 0) {
    result.grad_norm = model.gradient_norm(options.norm_type, stream) * std::fabs(options.scale);
    clip = clip_factor(result.grad_norm, options.max_grad_norm);
    finite = finite && std::isfinite(result.grad_norm);
  }
  if (options.check_finite && !finite) {  // equal on all ranks
    model.zero_gradients(stream);
    result.skipped = Skip::non_finite;
    return;
  }

  // 6. The fence: nobody may still read old values when their owner writes new ones. end_update lets readers
  //    in again and empties the gradients.
  model.begin_update(stream);
  optimizer.step(options.scale, clip, stream);
  model.end_update(stream, /*copies_written=*/true);
  result.step = optimizer.steps();
}

// 7. Seconds are this rank's own; tokens are those of all data ranks.
void measure(Model& model, Clock::time_point start, int64_t waited_ns, int64_t tokens, StepResult& result) {
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.tokens_per_second = result.seconds > 0 ? static_cast<double>(tokens) / result.seconds : 0;
  result.exposed_wait_seconds =
      static_cast<double>(model.gangs().root()->owner()->waited_ns() - waited_ns) * 1e-9;
}

}  // namespace
}  // namespace gangway
