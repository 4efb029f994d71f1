#include "parallel/fsdp/fsdp_state.h"

#include <algorithm>

#include "base/config.h"
#include "nn/gradient.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"
#include "parallel/memory_use.h"

namespace gangway {

namespace {

// The sum over an axis adds the gradients of one piece; ranks of an axis that splits have one for each piece.
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

// Takes the split at rest of an earlier plan off a parameter's layout, and looks up this rank's place on the axes of the
// others.
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

void FsdpState::set_order(const std::vector<const ParamGroup*>& order) {
  const auto place = [&](const auto& unit) { return std::find(order.begin(), order.end(), unit.get()); };
  std::stable_sort(units_.begin(), units_.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

std::shared_ptr<Buckets> FsdpState::make_buckets() { return std::make_shared<Buckets>(ops_); }

void FsdpState::adopt(const FsdpState& other) {
  units_.insert(units_.end(), other.units_.begin(), other.units_.end());
  orders_.insert(orders_.end(), other.orders_.begin(), other.orders_.end());
  materialized_ = true;
}

// NO_SHARD has whole values on every rank of dp_replicate x dp_shard x cp.
GroupContext FsdpState::place_of(const ParamGroup& unit) {
  GroupContext place;
  place.ops = &ops_;
  place.gangs = gangs_.get();
  place.regions = regions_;
  place.values = &values_;
  place.gradients = &gradients_;
  place.reductions = &reductions_;
  if (unit.options().strategy == Strategy::no_shard) {
    place.replicas = gangs_->loss_gang();
    place.replica_axes = "dp_replicate+dp_shard+cp";
    return place;
  }
  if (rests_on_host(unit)) {
    if (side_ == nullptr) side_ = std::make_unique<SideStream>(ops_.device());
    place.offload = side_.get();
  }
  place.shards = gangs_->fsdp_gang();
  place.replicas = gangs_->rdp();
  place.replica_axes = "dp_replicate";
  place.axis = gangs_->mesh().degree(Axis::cp) == 1 ? "dp_shard" : "dp_shard+cp";
  if (has_keepers(unit)) place.keepers = gangs_->fsdp_part(unit.options().reshard_after_forward);
  return place;
}

// On a device whose memory is the host's everything does.
bool FsdpState::rests_on_host(const ParamGroup& unit) const {
  return unit.options().cpu_offload && !is_on_host(ops_.device().memory_kind());
}

bool FsdpState::has_keepers(const ParamGroup& unit) const {
  const int k = unit.options().reshard_after_forward;
  Gang& shards = *gangs_->fsdp_gang();
  const bool in_region =
      regions_ && shards.shared_memory() != nullptr && !rests_on_host(unit);  // there nothing is gathered
  return unit.options().strategy != Strategy::no_shard && k > 1 && k < shards.size() && !in_region &&
         unit.read_in_backward();
}

void FsdpState::set_stages(std::vector<ParameterPtr> elsewhere, std::vector<TiedParameter> tied,
                           int most_unsharded, const ShardOptions& options) {
  options_ = options;
  elsewhere_ = std::move(elsewhere);
  to_tie_ = std::move(tied);
  most_unsharded_ = most_unsharded;
}

void FsdpState::materialize(uint64_t seed, DType master) {
  Stream& stream = ops_.device().stream();
  const CollectiveCall call(*gangs_, "materialize");
  std::vector<SharedRegion> regions;  // the fences', then those of units
  for (const auto& unit : units_)     // gangs are made together, in the order of the units
    if (has_keepers(*unit)) gangs_->fsdp_part(unit->options().reshard_after_forward);
  call.check([&] {
    plan(master);
    allocate();
    place_elsewhere(master);
    if (!to_tie_.empty()) tied_ = std::make_unique<TiedParameters>(ops_, gangs_->pp(), to_tie_);
    const auto in_region = [](const auto& unit) { return unit->values().region_bytes() != 0; };
    if (const auto count = std::count_if(units_.begin(), units_.end(), in_region))
      regions.resize(1 + static_cast<size_t>(count));
  });
  // Replicas open regions of their own, and one may lack memory.
  call.check([&] { open_regions(regions); });
  // An initialiser may be a caller's own.
  call.check([&] {
    for (const auto& unit : units_) unit->values().fill(seed, stream);
  });
  check_replicas(*this, "materialize", stream);
  for (const auto& unit : units_) unit->values().publish(false, stream);
  materialized_ = true;
}

void FsdpState::plan(DType master) {
  forget_plans();
  for (const auto& unit : units_) {
    for (const NamedParameter& named : unit->parameters()) place_on_mesh(*named.parameter, *gangs_);
    unit->plan(place_of(*unit), master);
  }
}

// Of a materialize that was refused half-way.
void FsdpState::forget_plans() {
  for (const auto& unit : units_) unit->forget_plan();
  values_ = {};
  gradients_ = {};
}

void FsdpState::remove_units() {
  forget_plans();
  set_stages({}, {}, 0, {});
  tied_ = nullptr;
  units_.clear();
}

void FsdpState::allocate() {
  int ahead = 1;
  for (const auto& unit : units_)
    ahead = std::max({ahead, unit->options().prefetch_forward, unit->options().prefetch_backward});
  const GangPtr& shards = gangs_->fsdp_gang();
  const GangPtr& replicas = gangs_->rdp();
  const std::shared_ptr<Allocator> shared = shards->size() > 1 ? shards->allocator() : replicas->allocator();
  values_.allocate(ops_.device().allocator(), std::max(1 + ahead, most_unsharded_));
  gradients_.allocate(shared, replicas->allocator(), 2);
  for (const auto& unit : units_) unit->allocate();
}

// They look like those of which a trailing rank has no rows.
void FsdpState::place_elsewhere(DType master) {
  const std::shared_ptr<Allocator> memory = ops_.device().allocator();
  for (const ParameterPtr& parameter : elsewhere_) {
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

// All that ranks do together comes before what one of them may lack memory for.
void FsdpState::open_regions(std::span<SharedRegion> regions) {
  if (regions.empty()) return;
  Gang& shards = *gangs_->fsdp_gang();
  const size_t each = VersionGate::bytes(shards.size());
  size_t taken = 0;
  regions[taken++] = shards.allocate_shared((regions.size() - 1) * each);
  for (const auto& unit : units_)
    if (const size_t bytes = unit->values().region_bytes()) regions[taken++] = shards.allocate_shared(bytes);
  size_t opened = 0;
  for (const auto& unit : units_) {
    if (unit->values().region_bytes() == 0) continue;
    unit->values().open_region(regions[1 + opened], regions[0], opened * each);
    ++opened;
  }
}

void FsdpState::unshard(ParamGroup& unit, bool forward, Stream& stream) {
  const auto wanted = [&](const ParamGroup& group) { return forward || group.read_in_backward(); };
  if (wanted(unit)) unit.unshard(stream);
  const auto here =
      std::find_if(units_.begin(), units_.end(), [&](const auto& u) { return u.get() == &unit; });
  const auto index = here - units_.begin();
  const int depth = forward ? unit.options().prefetch_forward : unit.options().prefetch_backward;
  const auto count = static_cast<std::ptrdiff_t>(units_.size());
  int ahead = 0;
  for (auto i = forward ? index + 1 : index - 1; i >= 0 && i < count && ahead < depth;
       i += forward ? 1 : -1) {
    ParamGroup& next = *units_[static_cast<size_t>(i)];
    if (!wanted(next)) continue;
    next.values().prefetch(stream);
    ++ahead;
  }
}

void FsdpState::reshard_all() {
  for (const auto& unit : units_) unit->reshard();
}

void FsdpState::finish_gradients(Stream& stream) {
  for (const auto& unit : units_) unit->gradients().start_leftovers(stream);
  for (const auto& unit : units_) unit->gradients().finish(stream);
  if (tied_ != nullptr) tied_->add_gradients(stream);
}

void FsdpState::zero_gradients(Stream& stream) {
  if (tied_ != nullptr) tied_->drop_gradients();
  for (const auto& unit : units_) unit->gradients().zero(stream);
}

void FsdpState::check_update(bool reshards) const {
  if (updating_)
    fail(Code::invalid_state, "begin_update: an update has begun already; end_update comes first");
  for (const auto& unit : units_)
    if (unit->unsharded() && !reshards)
      fail(Code::invalid_state, "begin_update: unit ", unit->name(),
           " is still unsharded (a forward that saved for backward keeps it so); backward or reshard comes "
           "first");
}

void FsdpState::begin_update(Stream& stream) {
  check_update();
  // Root, too: replicas of other shards meet this rank there.
  finish_gradients(stream);
  for (const auto& unit : units_) unit->values().release(stream);
  for (const auto& unit : units_) unit->values().wait_released(stream);
  updating_ = true;
}

void FsdpState::end_update(bool cast, bool empty, Stream& stream) {
  if (!updating_) fail(Code::invalid_state, "end_update: begin_update comes first");
  if (tied_ != nullptr) tied_->send_values(stream);
  for (const auto& unit : units_) unit->values().publish(cast, stream);
  updating_ = false;
  if (empty) zero_gradients(stream);
}

void FsdpState::count(MemoryUse& use) const {
  use.gathered += values_.bytes();
  use.full_gradients += gradients_.bytes() + (tied_ != nullptr ? tied_->bytes() : 0);
  for (const auto& unit : units_) unit->count(use);
}

}  // namespace gangway
