// All ranks make every check and agree on the result before anything changes.
#include "parallel/model/builder.h"

#include <algorithm>
#include <optional>

#include "nn/linear.h"
#include "parallel/collective_call.h"
#include "parallel/context/attention.h"
#include "parallel/fsdp/wrap.h"
#include "parallel/pipeline/runtime.h"
#include "parallel/recompute.h"
#include "parallel/tensor/apply.h"

namespace gangway {
namespace {

void check_no_stages(const Gangs& gangs, const char* call) {
  if (const int pp = gangs.mesh().degree(Axis::pp); pp > 1)
    fail(Code::not_supported, call, ": pp is ", pp, "; parallelize cuts a model into stages");
}

// Refuses scales that the device cannot multiply, before the first forward would.
void check_fp8(const ModulePtr& root, Ops& ops) {
  for (const NamedModule& named : named_modules(root))
    if (auto* const linear = dynamic_cast<Linear*>(named.module.get()))
      if (linear->fp8() != nullptr) linear->fp8()->check_device(ops);
}

}  // namespace

void ModelBuilder::check_describing(const char* call) const {
  if (parts_.materialized)
    fail(Code::invalid_state, call, ": the model is materialised; wrapping comes before that");
}

void ModelBuilder::check_degrees(const char* call) const {
  const int tp = parts_.gangs->mesh().degree(Axis::tp), cp = parts_.gangs->mesh().degree(Axis::cp);
  if (tp > 1 && !is_tensor_parallel(parts_.root))
    fail(Code::invalid_state, call, ": tp is ", tp,
         ", but the model is not split over tp; tensor_parallel comes first");
  if (cp > 1 && !is_context_parallel(parts_.root, cp))
    fail(Code::invalid_state, call, ": cp is ", cp,
         ", but attention does not go over cp; context_parallel comes first");
}

void ModelBuilder::check_wrappable(const char* call) const {
  check_describing(call);
  check_degrees(call);
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
  std::vector<ModulePlace> places;
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
  wrap_groups(parts_.root, places, options, parts_.fsdp);
}

void ModelBuilder::replicate(const ShardOptions& options) {
  ShardOptions whole = options;
  whole.strategy = Strategy::no_shard;
  std::vector<ModulePlace> places;
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
  wrap_groups(parts_.root, places, whole, parts_.fsdp);
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
  wrap_recomputed(options);
}

void ModelBuilder::wrap_recomputed(const RecomputeOptions& options) {
  const std::vector<ModulePlace> blocks = block_places(parts_.root);
  const std::vector<bool> chosen = recomputed_blocks(options, blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    if (chosen[i]) replace(parts_.root, blocks[i], make_recompute(blocks[i].module));
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
    check_fp8(parts_.root, *parts_.ops);
    const std::vector<NamedParameter> free = free_parameters(*parts_.root);
    const bool alone = parts_.gangs->root()->size() == 1 && parts_.fsdp->groups().empty();
    if (!free.empty() && !alone)
      fail(Code::invalid_state, "materialize: ", free.size(), " parameters, the first ", free[0].name,
           ", are in no parameter group, so that no reduction sums their gradients and the clip norm leaves "
           "them out; fully_shard(\"\") or replicate comes first");
    if (alone) {
      pristine_ = false;
      wrap_groups(parts_.root, match_places(parts_.root, ""), ShardOptions{}, parts_.fsdp);
    }
    parts_.fsdp->set_order(groups_in(*parts_.root));
    arguments = signature(seed, master);
  };
  call.check(check_all, arguments);
  pristine_ = false;
  parts_.seed = seed;
  parts_.fsdp->materialize(seed, master);
  if (parts_.pipeline != nullptr) call.run([&] { parts_.pipeline->bind(*parts_.fsdp); });
  list_parameters();
  parts_.materialized = true;
}

std::string ModelBuilder::signature(uint64_t seed, DType master) const {
  CallSignature signature("materialize");
  signature.add("seed", seed);
  signature.add("master_dtype", master);
  // Ranks that register no memory would not come to the collective registration of the others.
  signature.add("NCCL registers memory (GANGWAY_NCCL_REGISTER)",
                parts_.gangs->root()->registrable() != nullptr);
  signature.add("selective recomputation", parts_.recompute == Recompute::selective);
  if (parts_.pipeline == nullptr)
    // with a pipeline, parallelize compared the model before it cut it
    add_to_signature(parts_.root, signature);
  return signature.text();
}

void ModelBuilder::adopt(const std::vector<const FsdpState*>& groups, std::vector<NamedParameter> aliases) {
  for (const FsdpState* group : groups) parts_.fsdp->adopt(*group);
  list_parameters();
  parts_.aliases = std::move(aliases);
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
