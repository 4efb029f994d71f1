// Wrapping a model and giving it memory; every refusal is made, and agreed, before anything changes.
#include <algorithm>
#include <set>

#include "parallel/collective_call.h"
#include "parallel/context/attention.h"
#include "parallel/fsdp/wrap.h"
#include "parallel/model/model.h"
#include "parallel/recompute.h"

namespace gangway {
namespace {

std::shared_ptr<Buckets> buckets_for(const ShardOptions& options, FsdpState& domain) {
  return options.strategy == Strategy::no_shard ? domain.make_buckets() : nullptr;
}

void wrap_all(ModulePtr& root, const std::vector<Place>& places, const ShardOptions& options,
              const std::shared_ptr<FsdpState>& domain) {
  const std::shared_ptr<Buckets> buckets = buckets_for(options, *domain);
  for (Place place : places) {
    if (place.parent == nullptr) place.module = root;  // with the wrappers below it
    wrap_unit(root, place, options, domain, buckets);
  }
}

void check_units(const ModulePtr& root, const std::vector<Place>& places, const ShardOptions& options,
                 DType master) {
  for (const Place& place : places) check_unit(root, place, options, master);
}

void wrap_recomputed(ModulePtr& root, const RecomputeOptions& options) {
  const std::vector<Place> blocks = block_places(root);
  const std::vector<bool> chosen = recomputed_blocks(options, blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    if (chosen[i]) replace(root, blocks[i], make_recompute(blocks[i].module));
}

}  // namespace

void check_degrees(const Gangs& gangs, const ModulePtr& root) {
  const std::vector<NamedParameter> parameters =
      root == nullptr ? std::vector<NamedParameter>() : named_parameters(*root);
  const bool placed =
      !parameters.empty() && std::all_of(parameters.begin(), parameters.end(), [](const auto& p) {
        return find_axis(p.parameter->layout, name(Axis::tp)) != nullptr;
      });
  const int cp = gangs.mesh().degree(Axis::cp);
  const bool spread = cp > 1 && root != nullptr && is_context_parallel(root, cp);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp})
    if (gangs.mesh().degree(axis) > 1 && !(axis == Axis::tp && placed) && !(axis == Axis::cp && spread))
      fail(Code::not_supported, name(axis), " is ", gangs.mesh().degree(axis),
           "; a model can be parallel over dp_replicate and dp_shard only");
}

void Model::check_describing(const char* call) const {
  if (materialized_)
    fail(Code::invalid_state, call, ": the model is materialised; wrapping comes before that");
  check_degrees(*gangs_, root_);
}

void Model::fully_shard(const std::string& pattern, const ShardOptions& options) {
  std::vector<Place> places;
  const CollectiveCall call(*gangs_, "fully_shard");
  call.check([&] {
    check_describing("fully_shard");
    check(options, DType::f64);
    places = match_places(root_, pattern);
    check_apart(places);
    check_units(root_, places, options, DType{});
  });
  pristine_ = false;
  wrap_all(root_, places, options, domain_);
}

void Model::replicate(const ShardOptions& options) {
  ShardOptions whole = options;
  whole.strategy = Strategy::no_shard;
  std::vector<Place> places;
  const CollectiveCall call(*gangs_, "replicate");
  call.check([&] {
    check_describing("replicate");
    check(whole, DType::f64);
    places = default_places(root_);
    check_units(root_, places, whole, DType{});
  });
  pristine_ = false;
  wrap_all(root_, places, whole, domain_);
}

void Model::recompute(const RecomputeOptions& options) {
  const CollectiveCall call(*gangs_, "recompute");
  call.check([&] {
    check_describing("recompute");
    check(options);
    if (!domain_->units().empty())
      fail(Code::invalid_state, "recompute: unit ", domain_->units()[0]->name(),
           " is made already; recompute comes before fully_shard and replicate");
  });
  pristine_ = false;
  if (options.kind == RecomputeKind::selective) selective_ = Recompute::selective;
  wrap_recomputed(root_, options);
}

void Model::parallelize(const ParallelOptions& options) {
  std::set<const Module*> before;
  const CollectiveCall call(*gangs_, "parallelize");
  call.check([&] {
    check_describing("parallelize");
    check_master(options.master_dtype);
    check(options.shard, options.master_dtype);
    check(options.recompute);
    if (!domain_->units().empty())
      fail(Code::invalid_state, "parallelize: unit ", domain_->units()[0]->name(),
           " is made already; parallelize makes all units itself");
    check_units(root_, default_places(root_), options.shard, options.master_dtype);
    for (const NamedModule& m : named_modules(root_)) before.insert(m.module.get());
  });
  const Recompute selective = selective_;
  const bool pristine = std::exchange(pristine_, false);
  try {
    if (options.recompute.kind == RecomputeKind::selective) selective_ = Recompute::selective;
    call.check([&] {  // wrappers want memory
      wrap_recomputed(root_, options.recompute);
      wrap_all(root_, default_places(root_), options.shard, domain_);
    });
    materialize(options.seed, options.master_dtype);
  } catch (...) {  // so that it may be called again
    domain_->remove_units();
    unwrap(root_, before);
    selective_ = selective;
    pristine_ = pristine;
    throw;
  }
}

void Model::materialize(uint64_t seed, DType master) {
  Listing listing;
  std::string arguments;
  const CollectiveCall call(*gangs_, "materialize");
  const auto check_all = [&] {
    check_describing("materialize");
    check_master(master);
    for (const auto& unit : domain_->units()) check(unit->options(), master);
    check_dtypes(*root_, master);
    const std::vector<NamedParameter> free = free_parameters(*root_);
    const bool alone = gangs_->root()->size() == 1 && domain_->units().empty();
    if (!free.empty() && !alone)
      fail(Code::invalid_state, "materialize: ", free.size(), " parameters, the first ", free[0].name,
           ", are in no unit; fully_shard(\"\") or replicate comes first");
    if (alone) {
      pristine_ = false;
      wrap_all(root_, match_places(root_, ""), ShardOptions{}, domain_);
    }
    domain_->set_order(units_of(*root_));
    listing = list();
    arguments = facts(seed, master);
  };
  call.check(check_all, arguments);
  pristine_ = false;
  seed_ = seed;
  domain_->materialize(seed, master);
  listing_ = std::move(listing);
  materialized_ = true;
}

std::string Model::facts(uint64_t seed, DType master) const {
  Facts facts("materialize");
  facts.add("seed", seed);
  facts.add("master_dtype", master);
  facts.add("selective recomputation", selective_ == Recompute::selective);
  add_facts(root_, facts);
  return facts.text();
}

Model::Listing Model::list() const {
  Listing listing{named_parameters(*root_), named_parameters_with_aliases(*root_)};
  std::erase_if(listing.aliases, [&](const NamedParameter& a) {
    return std::any_of(listing.parameters.begin(), listing.parameters.end(),
                       [&](const auto& p) { return p.name == a.name; });
  });
  return listing;
}

}  // namespace gangway
