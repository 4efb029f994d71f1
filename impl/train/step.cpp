// One training step, from top to bottom. Read train_step first: it has the whole step in seven parts. The
// functions that do the parts follow below it, in the same order.
//
// Three rules:
//
// - Gradients are sums everywhere. Backward starts from 1/N, where N is the number of items that count on all
//   ranks and in all microbatches, so that the sum over microbatches and ranks is the gradient of the mean
//   loss. Nothing else divides, so that ranks and microbatches may have different weights. With a loss scale
//   S, backward starts from S/N: gradients are S times too large until the optimizer's step, which multiplies
//   them by 1/S. The reported norm is unscaled.
// - Nothing has changed until the check phase ends: if a rank finds an error, all ranks throw it and the
//   gangs stay usable. After it, a failure of one rank breaks every gang of the model, because its peers
//   already wait for it in collectives; they throw the failing rank's error.
// - Every decision that changes which collectives run (whether to skip, how to clip) depends on numbers that
//   are equal on all ranks.
#include "train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"
#include "parallel/model/clip.h"
#include "parallel/pipeline/runtime.h"
#include "train/microbatches.h"
#include "train/replay.h"
#include "train/totals.h"

namespace gangway {
namespace {

using Clock = std::chrono::steady_clock;

void check_options(const StepOptions& options);
void check_terms(Model& model, const StepOptions& options);
void check_optimizer(Model& model, const Optimizer& optimizer);
void check_loss_scale(const StepOptions& options, const LossScale& scale);
std::string arguments_of(const char* call, const StepOptions& options, const Optimizer* optimizer);
void run_gradients(Model& model, const PreparedBatch& batch, const Context& ctx, StepSums& sums);
std::optional<Error> replay(Model& model, const StepOptions& options, const PreparedBatch& batch,
                            const Context& ctx, double loss);
LossTotals totals_of(const StepSums& sums);
std::optional<Error> wrong_batch(Model& model, const StepSums& sums, PreparedBatch& batch);
void check_shared_weight(const BatchSums& batch, const StepSums& sums, const LossSums& loss);
void keep_norms(Model& model, const Optimizer& optimizer, const StepOptions& options, Stream& stream);
void update(Model& model, Optimizer& optimizer, const StepOptions& options, const StepSums& sums, bool finite,
            Stream& stream, StepResult& result);

// The parts that train_step, eval_step and optimizer_step share: a check phase, runs that end with the
// numbers of all ranks, and a result with times.
class Step {
 public:
  Step(const char* name, Model& model, const StepOptions& options, Stream& stream)
      : name_(name),
        model_(model),
        options_(options),
        stream_(stream),
        call_(model.gangs(), name),
        tracer_(model.gangs().root()->owner()->tracer()),
        waited_ns_(model.gangs().root()->owner()->waited_ns()),
        flush_{tracer_},
        span_(&tracer_, TraceRow::step, "step", name) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Runs the check phase and returns the sums over all ranks. `optimizer`: the one that will step, or null.
  // `own`: makes the further checks of this call and returns this rank's numbers.
  template <typename Own>
  BatchSums check(const Optimizer* optimizer, Own&& own) {
    std::string arguments;
    totals_ = sum_over(model_.gangs(), call_.check(
                                           [&]() -> BatchTotals {
                                             arguments = arguments_of(name_, options_, optimizer);
                                             model_.run().check_trainable(name_);
                                             check_options(options_);
                                             if (optimizer != nullptr)
                                               check_loss_scale(options_, optimizer->loss_scale());
                                             BatchTotals numbers = own();
                                             numbers.stop = options_.stop;
                                             return numbers;
                                           },
                                           arguments));
    if (totals_.weight < 0)  // equal on all ranks
      fail(Code::invalid_argument, name_, ": the weights of all tokens sum to ", totals_.weight,
           ", which cannot divide the loss; give batch.weight");
    result.weight = totals_.weight;
    result.tokens = totals_.tokens;
    result.stop = totals_.stop;
    return totals_;
  }

  // Returns the context that all microbatches share.
  Context context(int64_t step, bool training) {
    Context ctx = microbatch_context(model_, step, training, stream_);
    ctx.first_row = totals_.first_row;
    ctx.label_smoothing = options_.label_smoothing;
    ctx.z_loss = options_.z_loss;
    return ctx;
  }

  // If a pipeline has not seen such microbatches yet, its stages exchange their shapes in a check phase of
  // their own.
  void exchange_shapes(const PreparedBatch& batch, const Context& ctx) {
    if (totals_.unknown) call_.check([&] { exchange_stage_shapes(model_, batch, ctx); });
  }

  // Runs the collective part. If it fails on a model of one rank, the model stays usable.
  template <typename Body>
  void run(Body&& body) {
    try {
      call_.run(body);
    } catch (...) {
      if (call_.alone()) model_.run().give_up_run(stream_);
      throw;
    }
  }

  // Ends a run: returns the sums of all ranks' numbers. If a rank has a `refusal`, or ranks that must hold
  // equal values do not, all ranks throw; no optimizer has stepped yet.
  LossSums exchange(const std::optional<Error>& refusal, const LossTotals& own) {
    const LossSums sums = sum_over(model_.gangs(), call_.check([&] {
      if (refusal) throw *refusal;
      return own;
    }));
    if (sums.replicas_differ) tell_replicas_differ();  // equal on all ranks
    return sums;
  }

  // Completes the result: the seconds are this rank's own, the tokens are those of all data ranks.
  StepResult end() {
    const Gang& root = *model_.gangs().root();
    result.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    // A step without a label that counts computes nothing, so its time says nothing about the rate.
    const bool worked = result.seconds > 0 && result.skipped != Skip::no_weight;
    result.tokens_per_second = worked ? static_cast<double>(totals_.tokens) / result.seconds : 0;
    result.exposed_wait_seconds = static_cast<double>(root.owner()->waited_ns() - waited_ns_) * 1e-9;
    return result;
  }
  // Ends a step of weight 0: there is no mean loss and no gradient.
  StepResult end_without_weight() {
    result.skipped = Skip::no_weight;
    result.loss = std::numeric_limits<double>::quiet_NaN();
    return end();
  }

  StepResult result;

 private:
  // The checksums say only that values differ, so that all values are compared to name one. These are the
  // same unless something writes to them meanwhile.
  [[noreturn]] void tell_replicas_differ() {
    check_replicas(model_.fsdp(), name_, stream_);
    fail(Code::mismatch, name_,
         ": replicas differed during the step and are equal now; no thread may write to parameters while a "
         "step runs");
  }

  const char* name_;
  Model& model_;
  const StepOptions& options_;
  Stream& stream_;
  CollectiveCall call_;
  BatchSums totals_;
  const Clock::time_point start_ = Clock::now();
  Tracer& tracer_;
  const int64_t waited_ns_;
  struct Flush {
    Tracer& tracer;
    ~Flush() { tracer.flush(); }
  } const flush_;  // declared before span_, so that it flushes after the span has ended
  const TraceSpan span_;
};

}  // namespace

StepResult train_step(Model& model, Optimizer* given, const Batch& batch, const StepOptions& options,
                      Stream& stream) {
  Step step("train_step", model, options, stream);
  StackScope scope(model.temporaries());  // holds the shifted labels for the whole step

  // 1. Check phase: everything that a caller can get wrong is checked before anything changes.
  // 2. One small collective ends it: ranks exchange the results of their checks, and sum the weights to N.
  std::optional<PreparedBatch> prepared;
  const BatchSums totals = step.check(given, [&] {
    model.run().check_computes("train_step");
    check_terms(model, options);
    if (options.scale != 1)
      fail(Code::invalid_argument, "train_step: scale = ", options.scale,
           ", but the step seeds with 1/N (scale is for loops of your own)");
    if (given == nullptr) fail(Code::invalid_argument, "train_step: optimizer is null");
    check_optimizer(model, *given);
    model.run().check_update();
    prepared.emplace(model, batch, microbatches_of(model, options.microbatches));
    const bool known = check_microbatches(model, *prepared, step.context(given->steps() + 1, true));
    prepared->check_values(model, stream);
    return prepared->totals(known);
  });
  step.exchange_shapes(*prepared, step.context(given->steps() + 1, true));
  Optimizer& optimizer = *given;
  step.result.lr = optimizer.lr();
  step.result.loss_scale = optimizer.loss_scale().value();
  step.result.step = optimizer.steps();
  if (totals.weight == 0) return step.end_without_weight();  // equal on all ranks

  // 3. Forward and backward of each microbatch; backward starts from S/N. finish_gradients then reduces the
  //    gradients that were accumulated unsharded, and those over replicas. The host reads all numbers that it
  //    needs at the end, with the step's one wait for the device.
  // 4. The second small collective exchanges the loss, the finite flag (if no norm will show it), checksums
  //    of values that several ranks must hold equal, errors of ids that the check phase did not wait for, and
  //    the error of a loss whose weight is not the one that was summed to N. In that case 1/N was wrong on
  //    every rank, and no rank steps.
  std::optional<StepSums> sums;
  std::optional<Error> wrong_bits;
  LossSums all;
  try {
    step.run([&] {
      sums.emplace(model, &options, stream);
      Context ctx = step.context(optimizer.steps() + 1, true);
      ctx.loss_scale = optimizer.loss_scale().value() / totals.weight;
      run_gradients(model, *prepared, ctx, *sums);
      sums->read(prepared->pending_check());
      if (options.replay) wrong_bits = replay(model, options, *prepared, ctx, sums->loss());
    });
    const std::optional<Error> refusal = wrong_batch(model, *sums, *prepared);
    all = step.exchange(refusal ? refusal : wrong_bits, totals_of(*sums));
    check_shared_weight(totals, *sums, all);
  } catch (...) {
    if (!model.gangs().root()->error()) model.run().zero_gradients(stream);
    throw;
  }
  step.result.loss = all.loss / totals.weight;
  const bool finite = all.finite && std::isfinite(all.loss);  // gradients of a NaN loss may be finite

  // 5. to 7. Norm and clip, the optimizer's step inside the version gate, the result.
  step.run([&] {
    if (options.gradient_norms) keep_norms(model, optimizer, options, stream);
    update(model, optimizer, options, *sums, finite, stream, step.result);
  });
  return step.end();
}

StepResult eval_step(Model& model, const Batch& batch, const StepOptions& options, Stream& stream) {
  Step step("eval_step", model, options, stream);
  StackScope scope(model.temporaries());
  std::optional<PreparedBatch> prepared;
  const BatchSums totals = step.check(nullptr, [&] {
    model.run().check_computes("eval_step");
    check_terms(model, options);
    prepared.emplace(model, batch, microbatches_of(model, options.microbatches));
    const bool known = check_microbatches(model, *prepared, step.context(0, false));
    prepared->check_values(model, stream);
    return prepared->totals(known);
  });
  step.exchange_shapes(*prepared, step.context(0, false));
  if (totals.weight == 0) return step.end_without_weight();
  std::optional<StepSums> sums;
  step.run([&] {
    sums.emplace(model, nullptr, stream);
    run_microbatches(model, *prepared, step.context(0, false), *sums);
    sums->read(prepared->pending_check());
  });
  const LossSums all = step.exchange(wrong_batch(model, *sums, *prepared), totals_of(*sums));
  check_shared_weight(totals, *sums, all);
  step.result.loss = all.loss / totals.weight;
  return step.end();
}

StepResult optimizer_step(Model& model, Optimizer& optimizer, const StepOptions& options, Stream& stream) {
  Step step("optimizer_step", model, options, stream);
  StackScope scope(model.temporaries());
  step.check(&optimizer, [&] {
    check_optimizer(model, optimizer);
    model.run().check_update();
    model.run().check_reduced("optimizer_step");
    return BatchTotals{};
  });
  step.result.lr = optimizer.lr();
  step.result.loss_scale = optimizer.loss_scale().value();
  step.result.step = optimizer.steps();
  std::optional<StepSums> sums;
  step.run([&] {
    sums.emplace(model, &options, stream);
    sums->add_replicas();
    model.run().finish_gradients(stream);
    sums->add_gradients();
    if (sums->has_gradient_sums() || sums->compares_replicas()) sums->read();
  });
  const bool exchanges = needs_finite_flag(options) || sums->compares_replicas();  // equal on all ranks
  const bool finite = !exchanges || step.exchange(std::nullopt, totals_of(*sums)).finite;
  step.run([&] {
    if (options.gradient_norms) keep_norms(model, optimizer, options, stream);
    update(model, optimizer, options, *sums, finite, stream, step.result);
  });
  return step.end();
}

namespace {

// --- 1. check phase

void check_options(const StepOptions& options) {
  if (options.microbatches < 1)
    fail(Code::invalid_argument, "step.microbatches = ", options.microbatches, " is below 1");
  if (!(std::isfinite(options.max_grad_norm) && options.max_grad_norm >= 0))
    fail(Code::invalid_argument, "step.max_grad_norm = ", options.max_grad_norm,
         " is not a finite number >= 0");
  check_norm_type("step.norm_type", options.norm_type);
  if (!std::isfinite(options.scale))
    fail(Code::invalid_argument, "step.scale = ", options.scale, " is not finite");
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    fail(Code::invalid_argument, "step.label_smoothing = ", options.label_smoothing, " is not in [0, 1)");
  if (!(std::isfinite(options.z_loss) && options.z_loss >= 0))
    fail(Code::invalid_argument, "step.z_loss = ", options.z_loss, " is not a finite number >= 0");
}

// Another model makes its loss itself, and would not have these terms.
void check_terms(Model& model, const StepOptions& options) {
  if ((options.label_smoothing == 0 && options.z_loss == 0) || decoder_options(model.root()) != nullptr)
    return;
  fail(Code::invalid_argument, "step.label_smoothing = ", options.label_smoothing,
       ", step.z_loss = ", options.z_loss, ", but only a decoder's loss has these terms");
}

void check_optimizer(Model& model, const Optimizer& optimizer) {
  const auto same = [](const NamedParameter& a, const NamedParameter& b) {
    return a.parameter == b.parameter;
  };
  if (!std::equal(model.inspect().parameters().begin(), model.inspect().parameters().end(),
                  optimizer.parameters().begin(), optimizer.parameters().end(), same))
    fail(Code::invalid_argument, "train: the optimizer was made for the parameters of another model");
  if (optimizer.ema_swapped())
    fail(Code::invalid_state,
         "train: the parameters hold their averages; swap_ema swaps them back for a step");
}

// A dynamic loss scale changes when steps are not finite, so that it needs check_finite. With any loss scale
// a high norm type is refused: powers of scaled gradients would overflow.
void check_loss_scale(const StepOptions& options, const LossScale& scale) {
  constexpr double kMost = 32;
  if (scale.dynamic() && !options.check_finite)
    fail(
        Code::invalid_argument,
        "step.allow_non_finite beside a dynamic loss scale, which skips steps that are not finite and halves "
        "itself; give the optimizer a fixed loss_scale, or 1 for none");
  if (scale.used() && options.max_grad_norm > 0 && options.norm_type > kMost &&
      !std::isinf(options.norm_type))
    fail(Code::invalid_argument, "step.norm_type = ", options.norm_type, " is over ", kMost,
         " beside a loss scale: powers of scaled gradients overflow; infinity gives the largest gradient");
}

// The text that must be equal on all ranks. Ranks that differ in it would run different collectives, or step
// to different values.
std::string arguments_of(const char* call, const StepOptions& options, const Optimizer* optimizer) {
  CallSignature signature(call);
  signature.add("microbatches", options.microbatches);
  signature.add("max_grad_norm", options.max_grad_norm);
  signature.add("norm_type", options.norm_type);
  signature.add("check_finite", options.check_finite);
  signature.add("scale", options.scale);
  signature.add("replay", options.replay);
  signature.add("gradient_norms", options.gradient_norms);
  signature.add("label_smoothing", options.label_smoothing);
  signature.add("z_loss", options.z_loss);
  if (optimizer != nullptr) optimizer->add_to_signature(signature);
  return signature.text();
}

// --- 3. the microbatches, and what follows them

void run_gradients(Model& model, const PreparedBatch& batch, const Context& ctx, StepSums& sums) {
  run_microbatches(model, batch, ctx, sums);
  sums.add_replicas();  // while the last reductions travel
  model.run().reshard();
  model.run().finish_gradients(ctx.stream);
  sums.add_gradients();
}

// Computes the gradients once more, in the place of those of the first time, and returns the error if their
// bits differ.
std::optional<Error> replay(Model& model, const StepOptions& options, const PreparedBatch& batch,
                            const Context& ctx, double loss) {
  const StepBits first(model, loss, ctx.stream);
  model.run().zero_gradients(ctx.stream);
  const StackScope scope(model.temporaries());
  StepSums sums(model, &options, ctx.stream);
  run_gradients(model, batch, ctx, sums);
  sums.read();
  try {
    first.check(StepBits(model, sums.loss(), ctx.stream), model.gangs().root()->rank());
  } catch (const Error& difference) {
    return difference;
  }
  return std::nullopt;
}

// Returns the error of ids that the check phase did not wait for, or of a loss that has another weight than
// the batch.
std::optional<Error> wrong_batch(Model& model, const StepSums& sums, PreparedBatch& batch) {
  try {
    if (batch.pending_check()) batch.finish_check(sums.also());
  } catch (const Error& refusal) {
    return refusal;
  }
  if (model.pipeline() != nullptr && !model.pipeline()->has_loss()) return std::nullopt;
  // Exact comparison: a floating-point number holds integers below 2^53 (2^24 for a loss in f32) exactly.
  const bool compares_later = batch.shares_weight();  // check_shared_weight compares the sums
  if (compares_later || batch.has_token_weights()) return std::nullopt;
  if (!sums.known() || sums.weight() == batch.weight()) return std::nullopt;
  return Error(Code::invalid_argument,
               text("the model's loss says weight ", sums.weight(), ", the batch has ", batch.weight(),
                    " (N is summed before the first forward)"));
}

LossTotals totals_of(const StepSums& sums) {
  return {sums.loss(), sums.weight(), sums.replicas(), sums.finite()};
}

// The caller's weight of whole rows does not say how much of it is in the part of each rank of cp.
void check_shared_weight(const BatchSums& batch, const StepSums& sums, const LossSums& loss) {
  if (!batch.shares || !sums.known() || loss.weight == batch.weight) return;
  fail(Code::invalid_argument, "the model's losses say weight ", loss.weight,
       " over all ranks, the batches have ", batch.weight,
       " (batch.weight is that of the whole rows, which ranks of cp share)");
}

// --- 5. to 7. the update

void keep_norms(Model& model, const Optimizer& optimizer, const StepOptions& options, Stream& stream) {
  std::vector<double> norms = gradient_norms(model.fsdp(), model.inspect().parameters(), model.ops(), stream);
  for (double& norm : norms) norm *= std::fabs(options.scale / optimizer.loss_scale().value());
  model.inspect().keep_gradient_norms(std::move(norms));
}

void update(Model& model, Optimizer& optimizer, const StepOptions& options, const StepSums& sums, bool finite,
            Stream& stream, StepResult& result) {
  // 5. The norm of the whole gradient (one scalar summed over the mesh), and the factor that scales it down
  //    to max_grad_norm.
  const double scale = options.scale / optimizer.loss_scale().value();
  double clip = 1;
  if (options.max_grad_norm > 0) {
    result.grad_norm = sums.norm() * std::fabs(scale);
    clip = clip_factor(result.grad_norm, options.max_grad_norm);
    finite = finite && std::isfinite(result.grad_norm);
  }
  if (options.check_finite && !finite) {  // equal on all ranks
    model.run().zero_gradients(stream);
    result.skipped = Skip::non_finite;
    optimizer.loss_scale().follow(false);
    return;
  }

  // 6. The version gate: begin_update waits until no rank reads the values that their owner is about to
  //    write. end_update lets readers continue and empties the gradients.
  const TraceSpan span(&model.gangs().root()->owner()->tracer(), TraceRow::step, "step", "update");
  model.run().begin_update(stream);
  optimizer.step(scale, clip, stream);
  model.run().end_update(stream, /*copies_written=*/true);
  result.step = optimizer.steps();
  optimizer.loss_scale().follow(true);
}

}  // namespace
}  // namespace gangway
