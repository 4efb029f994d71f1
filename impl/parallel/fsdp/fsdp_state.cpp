#include "parallel/fsdp/fsdp_state.h"

#include <algorithm>

#include "base/config.h"
#include "nn/gradient.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"
#include "parallel/fsdp/version_gate.h"
#include "parallel/memory_use.h"

namespace gangway {

namespace {

// A sum over an axis is right only if its ranks have gradients of the same piece, so an axis that splits the
// parameter is refused.
void check_partial_axes(const Parameter& p) {
  if (p.grad_partial_axes.empty()) return;
  const AxisSet partial = parse_axes(p.grad_partial_axes);
  if ((partial & (kDataAxes | axis_bit(Axis::cp))) != 0)
    fail(Code::invalid_argument, "parameter ", p.full_name, ": grad_partial_axes (", p.grad_partial_axes,
         ") has a data axis, over which every gradient is summed; leave those axes out");
  for (const Placement& placement : p.layout)
    if (placement.kind == Placement::Kind::shard && (parse_axes(placement.axis) & partial) != 0)
      fail(Code::invalid_argument, "parameter ", p.full_name, " is split over ", placement.axis, " (",
           describe(p.layout), "), so its gradient cannot be partial over ", p.grad_partial_axes,
           ": each rank's gradient is of its own piece");
}

// Removes the FSDP split of an earlier plan from the layout of a parameter, and finds this rank's place on
// the axes of the other splits.
void place_on_mesh(Parameter& p, const Gangs& gangs) {
  std::erase_if(p.layout, [](const Placement& placement) { return placement.at_rest; });
  p.place.clear();
  for (const Placement& placement : p.layout) {
    if ((parse_axes(placement.axis) & (kDataAxes | axis_bit(Axis::cp))) != 0)
      fail(Code::invalid_argument, "parameter ", p.full_name, ": its layout (", describe(p.layout),
           ") splits over a data axis, which fully_shard does; leave those axes out");
    const GangPtr gang = gangs.by_axes(placement.axis);
    if (placement.kind == Placement::Kind::shard &&
        placement.bounds.size() != static_cast<size_t>(gang->size()) + 1)
      fail(Code::invalid_argument, "parameter ", p.full_name, " is split into ", placement.bounds.size() - 1,
           " pieces over ", placement.axis, ", which has ", gang->size(), " ranks");
    p.place.push_back(gang->rank());
  }
  check(p.layout, p.shape, p.place, p.full_name);
  check_partial_axes(p);
}

}  // namespace

FsdpState::FsdpState(std::shared_ptr<Gangs> gangs, Ops& ops)
    : gangs_(std::move(gangs)),
      ops_(ops),
      orders_{std::make_shared<StreamOrder>(ops.device().stream())},
      regions_(config().shared_regions) {}

void FsdpState::order(Stream& stream) {
  for (const auto& order : orders_) order->enter(stream);
}

void FsdpState::set_order(const std::vector<const ParameterGroup*>& order) {
  const auto place = [&](const auto& group) { return std::find(order.begin(), order.end(), group.get()); };
  std::stable_sort(groups_.begin(), groups_.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

std::shared_ptr<Buckets> FsdpState::make_buckets() { return std::make_shared<Buckets>(ops_); }

void FsdpState::adopt(const FsdpState& other) {
  groups_.insert(groups_.end(), other.groups_.begin(), other.groups_.end());
  orders_.insert(orders_.end(), other.orders_.begin(), other.orders_.end());
  materialized_ = true;
}

// With NO_SHARD every rank of dp_replicate x dp_shard x cp has the full values, so all of these ranks are
// replicas.
GroupContext FsdpState::place_of(const ParameterGroup& group) {
  GroupContext place;
  place.ops = &ops_;
  place.gangs = gangs_.get();
  place.regions = regions_;
  place.values = &values_;
  place.gradients = &gradients_;
  place.reductions = &reductions_;
  if (group.options().strategy == Strategy::no_shard) {
    place.replicas = gangs_->loss_gang();
    place.replica_axes = "dp_replicate+dp_shard+cp";
    return place;
  }
  if (is_offloaded(group)) {
    if (side_ == nullptr) side_ = std::make_unique<SideStream>(ops_.device());
    place.offload = side_.get();
  }
  place.shards = gangs_->fsdp_gang();
  place.replicas = gangs_->rdp();
  place.replica_axes = "dp_replicate";
  place.registers = registers();
  place.axis = gangs_->mesh().degree(Axis::cp) == 1 ? "dp_shard" : "dp_shard+cp";
  if (has_post_forward_gang(group))
    place.post_forward_gang = gangs_->fsdp_subgang(group.options().reshard_after_forward);
  return place;
}

// On a device whose memory is the host's there is nothing to offload.
bool FsdpState::is_offloaded(const ParameterGroup& group) const {
  return group.options().cpu_offload && !is_on_host(ops_.device().memory_kind());
}

// Returns whether the engine registers the buffers of gathers and reductions. External parameter groups hand
// their buffers to the caller, and offloaded ones gather in place, where each rank's part has another offset.
bool FsdpState::registers() const {
  const GangPtr& shards = gangs_->fsdp_gang();
  return shards->size() > 1 && shards->registrable() != nullptr &&
         std::none_of(groups_.begin(), groups_.end(),
                      [&](const auto& group) { return group->external() || is_offloaded(*group); });
}

// The lists go with this call, so that no buffer counts as held.
void FsdpState::register_buffers() {
  RegisteredBuffers buffers;
  for (const auto& group : groups_) {
    if (!group->sharded()) continue;
    group->values().list(buffers);
    group->gradients().list(buffers);
  }
  for (const RegisteredBuffers::List& list : buffers.lists())
    list.gang->register_memory(list.channel, list.buffers, list.sums);
}

// Memory goes back when all gangs that have it registered have ended that.
void FsdpState::release_registered() {
  std::vector<GangPtr> gangs = gangs_->fsdp_subgangs();
  gangs.insert(gangs.begin(), {gangs_->fsdp_gang(), gangs_->rdp()});
  for (const GangPtr& gang : gangs)
    if (gang->registrable() != nullptr) gang->release_memory();
}

void FsdpState::check_exports() const {
  if (!materialized_) return;
  for (const auto& group : groups_) {
    if (!group->sharded()) continue;
    group->values().check_exports();
    group->gradients().check_exports();
  }
}

bool FsdpState::has_post_forward_gang(const ParameterGroup& group) const {
  const int k = group.options().reshard_after_forward;
  Gang& shards = *gangs_->fsdp_gang();
  // With shared regions an unshard moves no bytes, so no part of the values needs to be kept.
  const bool in_region = regions_ && shards.shared_memory() != nullptr && !is_offloaded(group);
  return group.options().strategy != Strategy::no_shard && k > 1 && k < shards.size() && !in_region &&
         group.read_in_backward();
}

void FsdpState::set_stages(std::vector<ParameterPtr> remote_parameters, std::vector<TiedParameter> tied,
                           int most_unsharded, const ShardOptions& options) {
  options_ = options;
  remote_parameters_ = std::move(remote_parameters);
  to_tie_ = std::move(tied);
  most_unsharded_ = most_unsharded;
}

void FsdpState::materialize(uint64_t seed, DType master) {
  Stream& stream = ops_.device().stream();
  const CollectiveCall call(*gangs_, "materialize");
  std::vector<SharedRegion> regions;  // that of the version gates, then one for each parameter group
  for (const auto& group : groups_)   // to create a gang is collective, so all ranks do it in the same order
    if (has_post_forward_gang(*group)) gangs_->fsdp_subgang(group->options().reshard_after_forward);
  // Also by a model that registers nothing, which may need the memory of an earlier one.
  call.run([&] { release_registered(); });
  call.check([&] {
    plan(master);
    allocate();
    place_remote_parameters(master);
    if (!to_tie_.empty()) tied_ = std::make_unique<TiedParameters>(ops_, gangs_->pp(), to_tie_);
    const auto in_region = [](const auto& group) { return group->values().region_bytes() != 0; };
    if (const auto count = std::count_if(groups_.begin(), groups_.end(), in_region))
      regions.resize(1 + static_cast<size_t>(count));
  });
  if (registers()) call.run([&] { register_buffers(); });
  // A check phase, because each replica opens regions of its own and one of them may run out of memory.
  call.check([&] { open_regions(regions); });
  // A check phase, because a caller's initialiser may fail.
  call.check([&] {
    for (const auto& group : groups_) group->values().fill(seed, stream);
  });
  check_replicas(*this, "materialize", stream);
  for (const auto& group : groups_) group->values().publish(false, stream);
  materialized_ = true;
}

void FsdpState::plan(DType master) {
  forget_plans();
  for (const auto& group : groups_) {
    for (const NamedParameter& named : group->parameters()) place_on_mesh(*named.parameter, *gangs_);
    group->plan(place_of(*group), master);
  }
}

// A materialize that was refused may have left plans behind.
void FsdpState::forget_plans() {
  for (const auto& group : groups_) group->forget_plan();
  values_ = {};
  gradients_ = {};
}

void FsdpState::remove_groups() {
  forget_plans();
  set_stages({}, {}, 0, {});
  tied_ = nullptr;
  groups_.clear();
}

void FsdpState::allocate() {
  int ahead = 1;
  for (const auto& group : groups_)
    ahead = std::max({ahead, group->options().prefetch_forward, group->options().prefetch_backward});
  const GangPtr& shards = gangs_->fsdp_gang();
  const GangPtr& replicas = gangs_->rdp();
  const std::shared_ptr<Allocator> shared = shards->size() > 1 ? shards->allocator() : replicas->allocator();
  const int ring = std::max(1 + ahead, most_unsharded_);
  if (registers()) {
    const std::shared_ptr<Allocator> registrable = shards->registrable();
    values_.allocate(registrable, shards, ring);
    gradients_.allocate(registrable, registrable, shards, 2);
  } else {
    values_.allocate(ops_.device().allocator(), nullptr, ring);
    gradients_.allocate(shared, replicas->allocator(), nullptr, 2);
  }
  for (const auto& group : groups_) group->allocate();
}

// Parameters of other pipeline ranks look like those of which a trailing rank has no rows.
void FsdpState::place_remote_parameters(DType master) {
  const std::shared_ptr<Allocator> memory = ops_.device().allocator();
  for (const ParameterPtr& parameter : remote_parameters_) {
    Parameter& p = *parameter;
    place_on_mesh(p, *gangs_);
    if (master != DType{}) p.dtype = master;
    p.shard = Tensor::allocate(memory, p.dtype, p.local_shape());
    p.compute_dtype = compute_dtype(options_, p.full_name, p.dtype);
    const DType gradient = statistics_dtype(p.compute_dtype);
    p.shard_grad =
        wants_gradient(p) ? make_accumulator(Tensor::allocate(memory, gradient, p.local_shape())) : nullptr;
  }
}

// All collective calls come before the local ones, in which one rank may run out of memory.
void FsdpState::open_regions(std::span<SharedRegion> regions) {
  if (regions.empty()) return;
  Gang& shards = *gangs_->fsdp_gang();
  const size_t each = VersionGate::bytes(shards.size());
  size_t taken = 0;
  regions[taken++] = shards.allocate_shared((regions.size() - 1) * each);
  for (const auto& group : groups_)
    if (const size_t bytes = group->values().region_bytes()) regions[taken++] = shards.allocate_shared(bytes);
  size_t opened = 0;
  for (const auto& group : groups_) {
    if (group->values().region_bytes() == 0) continue;
    group->values().open_region(regions[1 + opened], regions[0], opened * each);
    ++opened;
  }
}

void FsdpState::unshard(ParameterGroup& group, bool forward, Stream& stream) {
  const auto wanted = [&](const ParameterGroup& group) { return forward || group.read_in_backward(); };
  if (wanted(group)) group.unshard(stream);
  const auto here =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& u) { return u.get() == &group; });
  const auto index = here - groups_.begin();
  const int depth = forward ? group.options().prefetch_forward : group.options().prefetch_backward;
  const auto count = static_cast<std::ptrdiff_t>(groups_.size());
  int ahead = 0;
  for (auto i = forward ? index + 1 : index - 1; i >= 0 && i < count && ahead < depth;
       i += forward ? 1 : -1) {
    ParameterGroup& next = *groups_[static_cast<size_t>(i)];
    if (!wanted(next)) continue;
    next.values().prefetch(stream);
    ++ahead;
  }
}

void FsdpState::reshard_all() {
  for (const auto& group : groups_) group->reshard();
}

void FsdpState::finish_gradients(Stream& stream) {
  for (const auto& group : groups_) group->gradients().start_leftovers(stream);
  for (const auto& group : groups_) group->gradients().finish(stream);
  if (tied_ != nullptr) tied_->add_gradients(stream);
}

void FsdpState::zero_gradients(Stream& stream) {
  if (tied_ != nullptr) tied_->drop_gradients();
  for (const auto& group : groups_) group->zero_gradients(stream);
}

void FsdpState::check_update(bool reshards) const {
  if (updating_)
    fail(Code::invalid_state, "begin_update: an update has begun already; end_update comes first");
  for (const auto& group : groups_)
    if (group->unsharded() && !reshards)
      fail(Code::invalid_state, "begin_update: parameter group ", group->name(),
           " is still unsharded (a forward that saved for backward keeps it so); backward or reshard comes "
           "first");
}

void FsdpState::check_reduced(const char* call) const {
  for (const auto& group : groups_)
    if (group->has_unreduced())
      fail(Code::invalid_state, call, ": shard group \"", group->name(), "\" (",
           group->parameters().front().name, " is its first of ", group->parameters().size(),
           " parameters) has full gradients that are not reduced; gw_shard_group_reduce comes first, or "
           "gw_zero_grad, which drops them");
}

void FsdpState::begin_update(Stream& stream) {
  check_update();
  // Reductions end before this rank waits for readers, because replicas in other shard gangs wait for its
  // part of them.
  finish_gradients(stream);
  for (const auto& group : groups_) group->values().release(stream);
  for (const auto& group : groups_) group->values().wait_released(stream);
  updating_ = true;
}

void FsdpState::end_update(bool cast, bool empty, Stream& stream) {
  if (!updating_) fail(Code::invalid_state, "end_update: begin_update comes first");
  if (tied_ != nullptr) tied_->send_values(stream);
  for (const auto& group : groups_) group->values().publish(cast, stream);
  updating_ = false;
  if (empty) zero_gradients(stream);
}

void FsdpState::count(MemoryUse& use) const {
  use.gathered += values_.bytes();
  use.full_gradients += gradients_.bytes() + (tied_ != nullptr ? tied_->bytes() : 0);
  for (const auto& group : groups_) group->count(use);
}

}  // namespace gangway
