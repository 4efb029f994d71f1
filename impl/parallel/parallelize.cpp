// Wraps a model and takes its memory. All ranks make every check and agree on the result before anything
// changes.
#include <algorithm>
#include <optional>

#include "parallel/activation_offload.h"
#include "parallel/collective_call.h"
#include "parallel/context/attention.h"
#include "parallel/fsdp/wrap.h"
#include "parallel/model/builder.h"
#include "parallel/pipeline/runtime.h"
#include "parallel/recompute.h"
#include "parallel/tensor/apply.h"
#include "parallel/tree_state.h"

namespace gangway {
namespace {

std::shared_ptr<Buckets> buckets_for(const ShardOptions& options, FsdpState& state) {
  return options.strategy == Strategy::no_shard ? state.make_buckets() : nullptr;
}

void wrap_all(ModulePtr& root, const std::vector<Place>& places, const ShardOptions& options,
              const std::shared_ptr<FsdpState>& state, bool scheduled = false) {
  const std::shared_ptr<Buckets> buckets = buckets_for(options, *state);
  for (Place place : places) {
    if (place.parent == nullptr) place.module = root;  // wrapping an earlier place may have replaced the root
    wrap_group(root, place, options, state, buckets, scheduled);
  }
}

void check_groups(const ModulePtr& root, const std::vector<Place>& places, const ShardOptions& options,
                  DType master) {
  for (const Place& place : places) check_group(root, place, options, master);
}

void wrap_recomputed(ModulePtr& root, const RecomputeOptions& options) {
  const std::vector<Place> blocks = block_places(root);
  const std::vector<bool> chosen = recomputed_blocks(options, blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    if (chosen[i]) replace(root, blocks[i], make_recompute(blocks[i].module));
}

bool is_tensor_parallel(const ModulePtr& root) {
  const std::vector<NamedParameter> parameters = named_parameters(*root);
  return !parameters.empty() && std::all_of(parameters.begin(), parameters.end(), [](const auto& p) {
    return find_axis(p.parameter->layout, name(Axis::tp)) != nullptr;
  });
}

}  // namespace

void check_degrees(const Gangs& gangs, const ModulePtr& root, const char* call) {
  const int tp = gangs.mesh().degree(Axis::tp), cp = gangs.mesh().degree(Axis::cp);
  if (tp > 1 && !is_tensor_parallel(root))
    fail(Code::invalid_state, call, ": tp is ", tp,
         ", but the model is not split over tp; tensor_parallel comes first");
  if (cp > 1 && !is_context_parallel(root, cp))
    fail(Code::invalid_state, call, ": cp is ", cp,
         ", but attention does not go over cp; context_parallel comes first");
}

void check_data_degrees(const Gangs& gangs) {
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp})
    if (const int degree = gangs.mesh().degree(axis); degree > 1)
      fail(Code::not_supported, name(axis), " is ", degree,
           ", but a shard group is over dp_replicate and dp_shard only");
}

namespace {

void check_no_stages(const Gangs& gangs, const char* call) {
  if (const int pp = gangs.mesh().degree(Axis::pp); pp > 1)
    fail(Code::not_supported, call, ": pp is ", pp, "; parallelize cuts a model into stages");
}

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

void ModelBuilder::check_describing(const char* call) const {
  if (parts_.materialized)
    fail(Code::invalid_state, call, ": the model is materialised; wrapping comes before that");
}

void ModelBuilder::check_wrappable(const char* call) const {
  check_describing(call);
  check_degrees(*parts_.gangs, parts_.root, call);
}

void ModelBuilder::check_no_groups(const char* call) const {
  if (!parts_.fsdp->groups().empty())
    fail(Code::invalid_state, call, ": parameter group ", parts_.fsdp->groups()[0]->name(),
         " is made already; ", call, " comes before fully_shard and replicate");
}

void ModelBuilder::check_not_split(const char* call) const {
  if (parts_.gangs->mesh().degree(Axis::tp) > 1 && is_tensor_parallel(parts_.root))
    fail(Code::invalid_state, call,
         ": the model is split over tp already; give all options of its plan to one call");
}

void ModelBuilder::tensor_parallel(const TensorOptions& options) {
  std::optional<TensorPlan> plan;
  const CollectiveCall call(*parts_.gangs, "tensor_parallel");
  call.check([&] {
    check_describing("tensor_parallel");
    check_no_groups("tensor_parallel");
    check_not_split("tensor_parallel");
    plan.emplace(parts_.root, options, parts_.gangs->tp());
  });
  pristine_ = false;
  call.check([&] { plan->apply(parts_.root); });  // may fail, because wrappers take memory
}

void ModelBuilder::context_parallel(ContextMethod method) {
  const CollectiveCall call(*parts_.gangs, "context_parallel");
  const int tp = parts_.gangs->mesh().degree(Axis::tp);
  call.check([&] {
    check_describing("context_parallel");
    check_no_groups("context_parallel");
    check_context(parts_.root, parts_.gangs->cp(), method, tp);
  });
  pristine_ = false;
  call.check([&] { apply_context(parts_.root, parts_.gangs->cp(), method, tp); });
}

bool ModelBuilder::spreads_context() const {
  const int cp = parts_.gangs->mesh().degree(Axis::cp);
  return cp > 1 && !is_context_parallel(parts_.root, cp);
}

void ModelBuilder::fully_shard(const std::string& pattern, const ShardOptions& options) {
  std::vector<Place> places;
  const CollectiveCall call(*parts_.gangs, "fully_shard");
  call.check([&] {
    check_no_stages(*parts_.gangs, "fully_shard");
    check_wrappable("fully_shard");
    check(options, DType::f64);
    check_reshard(options, parts_.gangs->fsdp_gang()->size());
    places = match_places(parts_.root, pattern);
    check_apart(places);
    check_groups(parts_.root, places, options, DType{});
  });
  pristine_ = false;
  wrap_all(parts_.root, places, options, parts_.fsdp);
}

void ModelBuilder::replicate(const ShardOptions& options) {
  ShardOptions whole = options;
  whole.strategy = Strategy::no_shard;
  std::vector<Place> places;
  const CollectiveCall call(*parts_.gangs, "replicate");
  call.check([&] {
    check_no_stages(*parts_.gangs, "replicate");
    check_wrappable("replicate");
    check(whole, DType::f64);
    check_reshard(whole, 1);
    places = default_places(parts_.root);
    check_groups(parts_.root, places, whole, DType{});
  });
  pristine_ = false;
  wrap_all(parts_.root, places, whole, parts_.fsdp);
}

void ModelBuilder::recompute(const RecomputeOptions& options) {
  const CollectiveCall call(*parts_.gangs, "recompute");
  call.check([&] {
    check_no_stages(*parts_.gangs, "recompute");
    check_wrappable("recompute");
    check(options);
    check_no_groups("recompute");
  });
  pristine_ = false;
  if (options.kind == RecomputeKind::selective) parts_.recompute = Recompute::selective;
  wrap_recomputed(parts_.root, options);
}

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
      arguments = facts_of_whole(options);
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
      check_degrees(*parts_.gangs, parts_.root, "parallelize");
      wrap_recomputed(parts_.root, options.recompute);  // before the cut: it counts the whole model's blocks
      if (options.activation_offload) offload_activations();
      if (chain != nullptr) cut(*chain, std::move(stages), options);
      const std::vector<Place> places = default_places(parts_.root);
      if (chain != nullptr) check_groups(parts_.root, places, options.shard, options.master_dtype);
      wrap_all(parts_.root, places, options.shard, parts_.fsdp, chain != nullptr);
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
  const int ranks = gangs.mesh().degree(Axis::pp);
  auto made = std::make_unique<StageCut>(chain, std::move(stages), pipeline_stages(options.pipeline, ranks),
                                         gangs.coordinate(Axis::pp), ranks);
  parts_.pipeline = std::make_unique<Pipeline>(std::move(made), options.pipeline, gangs, *parts_.ops,
                                               parts_.memory, parts_.frames);
}

void ModelBuilder::set_stages(const ShardOptions& options) {
  const StageCut& stages = parts_.pipeline->cut();
  parts_.fsdp->set_stages(stages.elsewhere(), stages.tied(), parts_.pipeline->most_groups(*parts_.fsdp),
                          options);
}

void ModelBuilder::materialize(uint64_t seed, DType master) {
  std::string arguments;
  const CollectiveCall call(*parts_.gangs, "materialize");
  const auto check_all = [&] {
    if (parts_.pipeline != nullptr)
      check_describing("materialize");  // parallelize checked the degrees before it cut the model
    else
      check_wrappable("materialize");
    if (parts_.pipeline == nullptr) check_no_stages(*parts_.gangs, "materialize");
    check_master(master);
    for (const auto& group : parts_.fsdp->groups()) check(group->options(), master);
    check_dtypes(*parts_.root, master);
    const std::vector<NamedParameter> free = free_parameters(*parts_.root);
    const bool alone = parts_.gangs->root()->size() == 1 && parts_.fsdp->groups().empty();
    if (!free.empty() && !alone)
      fail(Code::invalid_state, "materialize: ", free.size(), " parameters, the first ", free[0].name,
           ", are in no parameter group; fully_shard(\"\") or replicate comes first");
    if (alone) {
      pristine_ = false;
      wrap_all(parts_.root, match_places(parts_.root, ""), ShardOptions{}, parts_.fsdp);
    }
    parts_.fsdp->set_order(groups_in(*parts_.root));
    arguments = facts(seed, master);
  };
  call.check(check_all, arguments);
  pristine_ = false;
  parts_.seed = seed;
  parts_.fsdp->materialize(seed, master);
  if (parts_.pipeline != nullptr) call.run([&] { parts_.pipeline->bind(*parts_.fsdp); });
  list_parameters();
  parts_.materialized = true;
}

std::string ModelBuilder::facts_of_whole(const ParallelOptions& options) const {
  Facts facts("parallelize");
  facts.add("recompute", options.recompute.kind);
  facts.add("recompute every", options.recompute.every);
  facts.add("recompute ratio", options.recompute.ratio);
  add_facts(options.shard, facts);
  facts.add("plan", plan_to_text(options.tensor.rows));
  facts.add("sequence parallel", options.tensor.family.sequence_parallel);
  facts.add("loss parallel", options.tensor.family.loss_parallel);
  facts.add("overlap chunks", options.tensor.overlap_chunks);
  facts.add("context method", options.context);
  add_facts(options.pipeline, facts);
  add_facts(parts_.root, facts);
  return facts.text();
}

std::string ModelBuilder::facts(uint64_t seed, DType master) const {
  Facts facts("materialize");
  facts.add("seed", seed);
  facts.add("master_dtype", master);
  facts.add("selective recomputation", parts_.recompute == Recompute::selective);
  if (parts_.pipeline == nullptr)
    add_facts(parts_.root, facts);  // with a pipeline, parallelize compared the model before it cut it
  return facts.text();
}

void ModelBuilder::adopt(const std::vector<const FsdpState*>& groups) {
  for (const FsdpState* group : groups) parts_.fsdp->adopt(*group);
  list_parameters();
  parts_.materialized = true;
  parts_.computes = false;
}

void ModelBuilder::list_parameters() {
  if (parts_.pipeline != nullptr) {
    parts_.parameters = parts_.pipeline->cut().parameters();
    parts_.aliases = parts_.pipeline->cut().aliases();
    return;
  }
  parts_.parameters = named_parameters(*parts_.root);
  parts_.aliases = named_parameters_with_aliases(*parts_.root);
  std::erase_if(parts_.aliases, [&](const NamedParameter& a) {
    return std::any_of(parts_.parameters.begin(), parts_.parameters.end(),
                       [&](const auto& p) { return p.name == a.name; });
  });
}

}  // namespace gangway
