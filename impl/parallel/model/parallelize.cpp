// ModelBuilder::parallelize: all wrapping calls in one, and the only one that cuts a model into stages.
#include <optional>
#include <utility>

#include "parallel/activation_offload.h"
#include "parallel/collective_call.h"
#include "parallel/context/attention.h"
#include "parallel/fsdp/wrap.h"
#include "parallel/model/builder.h"
#include "parallel/pipeline/runtime.h"
#include "parallel/tensor/apply.h"
#include "parallel/tree_state.h"

namespace gangway {
namespace {

// Returns the chain that is cut over the pipeline's ranks, or null if pp is 1.
Chain* chain_of(const Gangs& gangs, Module& root) {
  const int pp = gangs.mesh().degree(Axis::pp);
  if (pp == 1) return nullptr;
  auto* chain = dynamic_cast<Chain*>(&unwrapped(root));
  if (chain == nullptr)
    fail(Code::not_supported, "parallelize: pp is ", pp, ", but a ", unwrapped(root).kind(),
         " cannot be cut into stages; a decoder or a Sequential can");
  return chain;
}

// Returns the stages, after all checks that are possible before the model is cut. Only the schedule for the
// given number of microbatches is checked; those for other numbers are checked in the step that needs them.
std::vector<Stage> stages_of(const Chain& chain, const Gangs& gangs, const ParallelOptions& options) {
  const PipelineOptions& o = options.pipeline;
  check(o);
  if (options.shard.reshard_after_forward > 1)
    fail(Code::not_supported, "reshard_after_forward is ", options.shard.reshard_after_forward,
         ", but the schedule says when stages of a pipeline are resharded; give -1, 0 or 1");
  if (options.shard.accumulate_unsharded == 0)
    fail(Code::invalid_argument,
         "accumulate_unsharded is 0, but stages of a pipeline sum their gradients and reduce once");
  const int ranks = gangs.mesh().degree(Axis::pp);
  const int own = o.own_schedule != nullptr ? o.own_schedule->microbatches : o.microbatches;
  if (o.own_schedule != nullptr && o.microbatches != 0 && o.microbatches != own)
    fail(Code::invalid_argument, "pipeline: microbatches is ", o.microbatches, ", but the schedule has ",
         own);
  if (own != 0) pipeline_schedule(o, ranks, own, o.most_unsharded);
  return split_stages(chain, static_cast<int>(pipeline_stages(o, ranks).size()), o);
}

}  // namespace

void ModelBuilder::parallelize(const ParallelOptions& options) {
  std::optional<TensorPlan> plan;  // none if the model is split over tp already
  std::optional<TreeState> before;
  bool spreads = false;
  const int tp = parts_.gangs->mesh().degree(Axis::tp);
  Chain* chain = nullptr;
  std::vector<Stage> stages;
  std::string arguments;
  const CollectiveCall call(*parts_.gangs, "parallelize");
  const auto check_all = [&] {
    check_describing("parallelize");
    check_master(options.master_dtype);
    check(options.shard, options.master_dtype);
    check_reshard(options.shard, parts_.gangs->fsdp_gang()->size());
    check(options.recompute);
    if (!parts_.fsdp->groups().empty())
      fail(Code::invalid_state, "parallelize: parameter group ", parts_.fsdp->groups()[0]->name(),
           " is made already; parallelize makes all parameter groups itself");
    chain = chain_of(*parts_.gangs, *parts_.root);
    if (chain != nullptr) {
      stages = stages_of(*chain, *parts_.gangs, options);
      arguments = signature_of_whole(options);
    } else {
      check_groups(parts_.root, default_places(parts_.root), options.shard, options.master_dtype);
    }
    if (options.tensor != TensorOptions()) check_not_split("parallelize");
    if (tp == 1 || !is_tensor_parallel(parts_.root))
      plan.emplace(parts_.root, options.tensor, parts_.gangs->tp());
    spreads = spreads_context();
    if (!spreads && parts_.gangs->mesh().degree(Axis::cp) > 1 && options.context != ContextMethod::ring)
      fail(Code::invalid_state,
           "parallelize: attention goes over cp already; leave the context method to context_parallel");
    if (spreads) check_context(parts_.root, parts_.gangs->cp(), options.context, tp);
    before.emplace(parts_.root);
  };
  call.check(check_all, arguments);
  const Recompute recompute = parts_.recompute;
  const bool pristine = std::exchange(pristine_, false);
  try {
    if (options.recompute.kind == RecomputeKind::selective) parts_.recompute = Recompute::selective;
    call.check([&] {  // may fail, because wrappers take memory
      if (plan) plan->apply(parts_.root);
      if (spreads) apply_context(parts_.root, parts_.gangs->cp(), options.context, tp);
      check_degrees("parallelize");
      wrap_recomputed(options.recompute);  // before the cut: it counts the whole model's blocks
      if (options.activation_offload) offload_activations();
      if (chain != nullptr) cut(*chain, std::move(stages), options);
      const std::vector<ModulePlace> places = default_places(parts_.root);
      if (chain != nullptr) check_groups(parts_.root, places, options.shard, options.master_dtype);
      wrap_groups(parts_.root, places, options.shard, parts_.fsdp, chain != nullptr);
      if (chain != nullptr) set_stages(options.shard);
    });
    materialize(options.seed, options.master_dtype);
  } catch (...) {  // restores the model, so that parallelize may be called again
    parts_.fsdp->remove_groups();
    if (parts_.pipeline != nullptr) parts_.pipeline->cut().undo();
    parts_.pipeline = nullptr;
    before->restore(parts_.root);
    parts_.recompute = recompute;
    parts_.offload = nullptr;
    pristine_ = pristine;
    throw;
  }
}

void ModelBuilder::offload_activations() {
  if (is_on_host(parts_.ops->device().memory_kind())) return;
  parts_.offload =
      std::make_shared<ActivationOffload>(parts_.gangs->root()->owner()->device_ptr(), parts_.memory);
  wrap_offloaded(parts_.root, parts_.offload);
}

void ModelBuilder::cut(Chain& chain, std::vector<Stage> stages, const ParallelOptions& options) {
  Gangs& gangs = *parts_.gangs;
  std::vector<int> stage_rank = pipeline_stages(options.pipeline, gangs.mesh().degree(Axis::pp));
  auto made = std::make_unique<StageCut>(chain, std::move(stages), std::move(stage_rank), gangs);
  parts_.pipeline = std::make_unique<Pipeline>(std::move(made), options.pipeline, gangs, *parts_.ops,
                                               parts_.memory, parts_.frames);
}

void ModelBuilder::set_stages(const ShardOptions& options) {
  const StageCut& stages = parts_.pipeline->cut();
  parts_.fsdp->set_stages(stages.remote_parameters(), stages.tied(),
                          parts_.pipeline->most_groups(*parts_.fsdp), options);
}

std::string ModelBuilder::signature_of_whole(const ParallelOptions& options) const {
  CallSignature signature("parallelize");
  signature.add("recompute", options.recompute.kind);
  signature.add("recompute every", options.recompute.every);
  signature.add("recompute ratio", options.recompute.ratio);
  add_to_signature(options.shard, signature);
  signature.add("plan", plan_to_text(options.tensor.rows));
  signature.add("sequence parallel", options.tensor.family.sequence_parallel);
  signature.add("loss parallel", options.tensor.family.loss_parallel);
  signature.add("overlap chunks", options.tensor.overlap_chunks);
  signature.add("context method", options.context);
  add_to_signature(options.pipeline, signature);
  add_to_signature(parts_.root, signature);
  return signature.text();
}

}  // namespace gangway
