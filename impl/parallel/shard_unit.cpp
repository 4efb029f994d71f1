// Storage and values of a unit; gradients are in shard_unit_gradients.cpp.
#include "parallel/shard_unit.h"

#include <algorithm>

#include "parallel/model.h"

namespace gangway {
namespace {

bool reshards_by_default(const ShardOptions& o, bool owns_slots) {
  return o.strategy == Strategy::full_shard && !owns_slots;
}

bool accumulates_by_default(const ShardOptions& o) { return o.strategy != Strategy::full_shard; }

void* at(const std::shared_ptr<Buffer>& buffer, size_t offset) {
  return buffer->data() == nullptr ? nullptr : static_cast<char*>(buffer->data()) + offset;
}

}  // namespace

ShardUnit::ShardUnit(std::string name, std::vector<NamedParameter> parameters, const ShardOptions& options,
                     bool owns_slots)
    : name_(std::move(name)),
      named_(std::move(parameters)),
      options_(options),
      owns_slots_(owns_slots),
      reshards_(options.reshard_after_forward < 0 ? reshards_by_default(options, owns_slots)
                                                  : options.reshard_after_forward == 1),
      accumulates_(options.accumulate_unsharded < 0 ? accumulates_by_default(options)
                                                    : options.accumulate_unsharded == 1) {}

// Peers may still read this rank's rows, and need them only while they gather themselves.
ShardUnit::~ShardUnit() {
  try {
    if (gather_ != nullptr) gather_->wait(Deadline::never());
    if (last_gather_ != nullptr) last_gather_->wait_input(Deadline::never());
  } catch (const Error&) {  // the gang is broken: nobody reads on
  }
}

void ShardUnit::plan(const UnitPlace& place, DType master, ValueRing& values, GradientRing& gradients,
                     ReductionLine& line) {
  place_ = place;
  value_ring_ = &values;
  gradient_ring_ = &gradients;
  line_ = &line;
  const int ranks = place_.shard_ranks();
  packing_ = pack(named_, options_, master, place_.axis, ranks, place_.shard_rank());
  if (ranks > 1 && packing_.bytes.region != 0)  // nothing to shard: as good as whole
    storage_ =
        place_.regions && place_.shards->engine().on_one_host() ? Storage::region : Storage::gathered;
  if (storage_ == Storage::gathered && !owns_slots_ && reshards_) values.need(packing_.bytes.full);

  const UnitBytes& b = packing_.bytes;
  const size_t wire = packing_.same_wire ? 0 : b.wires;
  const size_t landing = lands_in_place() || ranks == 1 ? 0 : b.landings;
  if (!reduces()) return;
  if (!owns_slots_ && !accumulates_) return gradients.need(b.gradients, wire, landing);
  own_gradients_.full_bytes = b.gradients;
  own_gradients_.wire_bytes = wire;
  own_gradients_.landing_bytes = landing;
}

void ShardUnit::allocate() {
  const UnitBytes& b = packing_.bytes;
  const std::shared_ptr<Allocator> shared =
      place_.shard_ranks() > 1 ? place_.shards->allocator() : place_.replicas->allocator();
  Stream& stream = place_.ops->device().stream();
  if (b.masters != 0) masters_ = Buffer::allocate(plain(), b.masters);
  if (storage_ != Storage::region) {
    own_ = Buffer::allocate(storage_ == Storage::gathered ? shared : plain(), b.own);
    place_.ops->device().zero(own_->data(), b.own, stream);
  }
  if (masters_ != nullptr) place_.ops->device().zero(masters_->data(), b.masters, stream);
  if (!gradients_elsewhere_) shard_gradients_ = Buffer::allocate(plain(), b.shard_gradients);
  if (storage_ == Storage::gathered && (owns_slots_ || !reshards_)) own_slot_.allocate(plain(), b.full);
  if (own_gradients_.full_bytes != 0) {
    own_gradients_.full_from = shared;
    own_gradients_.landing_from = place_.replicas->allocator();
    if (!manual_) own_gradients_.allocate();
  }
}

size_t ShardUnit::region_bytes() const { return storage_ == Storage::region ? packing_.bytes.region : 0; }

void ShardUnit::open_region(const SharedRegion& region, const SharedRegion& fences, size_t fence_offset) {
  region_ = region;
  fence_.emplace(place_.shards, fences, fence_offset, name_);
}

Tensor ShardUnit::own_rows(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype,
                           const PackedParameter& p) const {
  Shape shape = p.parameter->shape;
  shape[0] = p.parameter->row_last - p.parameter->row_first;
  return Tensor(buffer, at, dtype, shape);
}

void ShardUnit::fill(uint64_t seed, Stream& stream) {
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    const size_t first = static_cast<size_t>(place_.shard_rank()) * packed.padded_bytes(packed.compute);
    const Tensor own = storage_ == Storage::region
                           ? own_rows(region_.writable, packed.region_at + first, packed.compute, packed)
                           : own_rows(own_, packed.own_at, packed.compute, packed);
    p.shard = packed.has_copy() ? own_rows(masters_, packed.master_at, packed.master, packed) : own;
    p.shard_copy = packed.has_copy() ? own : Tensor();
    p.value = storage_ == Storage::whole ? own : Tensor();
    if (!gradients_elsewhere_) place_gradient(packed);
    if (p.row_first == p.row_last) continue;
    initialize_rows(*place_.ops, stream, p, seed, p.row_first, p.row_last, p.shard);
    if (packed.has_copy()) place_.ops->cast(p.shard, p.shard_copy, stream);
  }
}

void ShardUnit::place_gradient(const PackedParameter& packed) {
  Parameter& p = *packed.parameter;
  p.shard_grad = p.grad = Tensor();
  p.grad_written = p.shard_grad_written = false;
  if (!packed.has_gradient) return;
  p.shard_grad = own_rows(shard_gradients_, packed.shard_gradient_at, packed.gradient, packed);
  if (!reduces()) p.grad = p.shard_grad;  // whole, and nobody else's
}

void ShardUnit::show(const std::shared_ptr<Buffer>& buffer, bool region) {
  for (const PackedParameter& p : packing_.parameters)
    p.parameter->value =
        Tensor(buffer, region ? p.region_at : p.full_at, p.compute, p.parameter->shape);
}

void ShardUnit::gather(Stream& stream) {
  value_slot_->take(*this);
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = at(own_, p.own_at);
    c.out = at(value_slot_->buffer, p.full_at);
    c.count = p.counts[static_cast<size_t>(place_.shard_rank())];
    c.counts = p.counts.data();
    c.dtype = p.compute;
    c.borrow = true;
    span.push_back(c);
  }
  gather_ = last_gather_ = place_.shards->run(Channel::fsdp_gather, span, &stream);
}

void ShardUnit::prefetch(Stream& stream) {
  if (storage_ != Storage::gathered || unsharded_ || gather_ != nullptr) return;
  value_slot_ = own_slot_.buffer != nullptr ? &own_slot_ : value_ring_->find(false);
  if (value_slot_ != nullptr) gather(stream);
}

void ShardUnit::unshard(Stream& stream) {
  if (unsharded_) return;
  if (updating_) fail(Code::invalid_state, "unit ", name_, ": unshard between begin_update and end_update");
  switch (storage_) {
    case Storage::whole:
      break;
    case Storage::region:
      fence_->wait_ready();
      show(region_.readable, true);
      break;
    case Storage::gathered:
      if (gather_ == nullptr) {
        value_slot_ = own_slot_.buffer != nullptr ? &own_slot_ : value_ring_->find(true);
        if (value_slot_ == nullptr)
          fail(Code::invalid_state, "unit ", name_,
               ": the ring of gathered values is full; nested units need reshard_after_forward = 0");
        gather(stream);
      }
      gather_->wait(Deadline::never());
      gather_->order(stream);
      gather_ = nullptr;
      show(value_slot_->buffer, false);
      break;
  }
  unsharded_ = true;
}

void ShardUnit::reshard() {
  if (!unsharded_) return;
  unsharded_ = false;
  if (storage_ == Storage::whole) return;
  for (const PackedParameter& p : packing_.parameters) p.parameter->value = Tensor();
  if (value_slot_ != nullptr) value_slot_->user = nullptr;
  value_slot_ = nullptr;
}

bool ShardUnit::drop_gathered() {
  if (unsharded_) return false;
  if (gather_ != nullptr) gather_->wait(Deadline::never());
  gather_ = nullptr;
  value_slot_->user = nullptr;
  value_slot_ = nullptr;
  return true;
}

void ShardUnit::release() {
  updating_ = true;
  if (fence_) fence_->release();
  if (value_slot_ != nullptr) drop_gathered();  // gathered ahead: old values
}

void ShardUnit::wait_released() {
  if (fence_) fence_->wait_released();
  if (last_gather_ != nullptr) last_gather_->wait_input(Deadline::never());
  last_gather_ = nullptr;
}

void ShardUnit::publish(bool cast, Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (cast && p.has_copy() && p.parameter->shard.count() != 0)
      place_.ops->cast(p.parameter->shard, p.parameter->shard_copy, stream);
  updating_ = false;
  if (!fence_) return;
  stream.synchronize();
  fence_->publish();
}

void ShardUnit::count(MemoryUse& use) const {
  const UnitBytes& b = packing_.bytes;
  use.master += b.masters;
  if (storage_ == Storage::region) {
    use.region_rows += b.own;
  } else {
    use.master += b.own_masters;
    use.copies += b.own_copies;
  }
  if (!gradients_elsewhere_) use.gradient_shards += b.shard_gradients;
  if (own_slot_.buffer != nullptr) use.gathered += own_slot_.bytes;
  use.full_gradients += own_gradients_.bytes();
}

}  // namespace gangway
