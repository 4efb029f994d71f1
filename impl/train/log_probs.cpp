#include "train/log_probs.h"

#include <optional>
#include <string>

#include "gang/agreement.h"
#include "parallel/collective_call.h"
#include "parallel/pipeline/runtime.h"
#include "tensor/host_view.h"
#include "train/microbatches.h"
#include "train/sequence_parts.h"
#include "train/totals.h"

namespace gangway {
namespace {

void check(Model& model, const Batch& batch, const StepOptions& options) {
  model.run().check_trainable("log_probs");
  model.run().check_computes("log_probs");
  if (decoder_options(model.root()) == nullptr)
    fail(Code::invalid_argument, "log_probs: the model is not a decoder");
  if (options.microbatches < 1)
    fail(Code::invalid_argument, "step.microbatches = ", options.microbatches, " is below 1");
  if (batch.token_weights)
    fail(Code::invalid_argument, "log_probs: batch.token_weights is given, but log-probabilities have none");
}

// Writes the log-probabilities of each microbatch to the rows of `out` [rows, sequence].
struct Rows final : LossSink {
  Rows(Model& model, const Tensor& out, Stream& stream) : model(model), out(out), stream(stream) {}
  void add(const Values& outputs) override {
    const Tensor& made = outputs.at(2);
    model.ops().cast(made, out.slice(0, row, row + made.dim(0)), stream);
    row += made.dim(0);
  }
  Model& model;
  const Tensor out;
  Stream& stream;
  int64_t row = 0;
};

// The ranks of the last stage of a pipeline have the values; all others get them.
void receive_from_last_stage(Model& model, std::vector<double>& values) {
  const Pipeline* const pipeline = model.pipeline();
  if (pipeline == nullptr || !model.gangs().pp()->has_peers()) return;
  Collective record;
  record.op = CollectiveOp::broadcast;
  record.in = record.out = values.data();
  record.count = values.size();
  record.dtype = DType::f64;
  record.peer = pipeline->cut().stage_rank().back();
  model.gangs().pp()->agreement().run_now(Channel::control, record);
}

}  // namespace

std::vector<double> log_probs(Model& model, const Batch& batch, const StepOptions& options, Stream& stream) {
  const CollectiveCall call(model.gangs(), "log_probs");
  const StackScope scope(model.temporaries());
  std::optional<PreparedBatch> prepared;
  std::string arguments;
  const BatchSums totals = sum_over(
      model.gangs(), call.check(
                         [&] {
                           CallSignature signature("log_probs");
                           signature.add("microbatches", options.microbatches);
                           arguments = signature.text();
                           check(model, batch, options);
                           Batch labelled = batch;
                           labelled.weight = -1;  // the labels are counted and checked before anything runs
                           prepared.emplace(model, labelled, microbatches_of(model, options.microbatches));
                           const bool known = check_microbatches(model, *prepared,
                                                                 microbatch_context(model, 0, false, stream));
                           prepared->check_values(model, stream);
                           return prepared->totals(known);
                         },
                         arguments));
  const Context ctx = microbatch_context(model, 0, false, stream);
  if (totals.unknown) call.check([&] { exchange_stage_shapes(model, *prepared, ctx); });
  return call.run([&] {
    const Tensor out = Tensor::allocate(model.device().allocator(), DType::f64, prepared->labels().shape());
    Rows rows(model, out, stream);
    run_log_probs(model, *prepared, ctx, rows);
    if (model.device().kind() == DeviceKind::meta)
      return std::vector<double>(static_cast<size_t>(out.count()));
    const bool cut = model.gangs().mesh().degree(Axis::cp) > 1;
    const HostView<double> host(cut ? whole_value(model, out, stream) : out, stream);
    std::vector<double> all(host.begin(), host.end());
    receive_from_last_stage(model, all);
    return all;
  });
}

}  // namespace gangway
