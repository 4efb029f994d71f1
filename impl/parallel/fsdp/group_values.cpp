#include "parallel/fsdp/group_values.h"

#include "base/interrupt.h"
#include "parallel/interrupted.h"
#include "parallel/memory_use.h"

namespace gangway {

GroupValues::GroupValues(const std::string& unit, const GroupContext& place, const Packing& packing,
                         bool shares_slots)
    : name_(unit), place_(place), packing_(packing) {
  gathering_.shares_slots = shares_slots;
  if (place_.shard_ranks() == 1 || packing_.bytes.region == 0) return;  // nothing to shard: as good as whole
  storage_ =
      place_.regions && place_.shards->shared_memory() != nullptr ? Storage::region : Storage::gathered;
  if (storage_ == Storage::gathered && shares_slots) place_.values->need(packing_.bytes.full);
}

// Peers may still read this rank's rows, and this rank's own gather may still write.
GroupValues::~GroupValues() {
  if (gathering_.last == nullptr) return;
  Works& works = *place_.shards->owner()->works();
  works.keep(gathering_.last, own_);
  if (gathering_.slot != nullptr) works.keep(gathering_.last, gathering_.slot->buffer);
}

void GroupValues::allocate() {
  const GroupBytes& b = packing_.bytes;
  Device& device = place_.ops->device();
  masters_ = Buffer::allocate(place_.plain(), b.masters);
  device.zero(masters_->data(), b.masters, device.stream());  // padding stays so
  if (storage_ == Storage::region) return;
  own_ = Buffer::allocate(storage_ == Storage::gathered ? place_.reachable() : place_.plain(), b.own);
  device.zero(own_->data(), b.own, device.stream());
  if (storage_ == Storage::gathered && !gathering_.shares_slots)
    gathering_.own.allocate(place_.plain(), b.full);
}

size_t GroupValues::region_bytes() const { return storage_ == Storage::region ? packing_.bytes.region : 0; }

void GroupValues::open_region(const SharedRegion& region, const SharedRegion& fences, size_t fence_offset) {
  region_ = region;
  fence_.emplace(place_.shards, fences, fence_offset, name_);
}

void GroupValues::fill(uint64_t seed, Stream& stream) {
  for (const PackedParameter& packed : packing_.parameters) {
    poll_interrupt_at_times();
    Parameter& p = *packed.parameter;
    const size_t first = static_cast<size_t>(place_.shard_rank()) * packed.padded_bytes(packed.compute);
    const Tensor own = storage_ == Storage::region
                           ? own_rows(region_.writable, packed.region_at + first, packed.compute, packed)
                           : own_rows(own_, packed.own_at, packed.compute, packed);
    p.shard = packed.has_copy() ? own_rows(masters_, packed.master_at, packed.master, packed) : own;
    p.shard_copy = packed.has_copy() ? own : Tensor();
    p.value = storage_ == Storage::whole ? own : Tensor();
    if (p.row_first == p.row_last) continue;
    initialize_rows(*place_.ops, stream, p, seed, p.row_first, p.row_last, p.shard);
    if (packed.has_copy()) place_.ops->cast(p.shard, p.shard_copy, stream);
  }
}

void GroupValues::show(const std::shared_ptr<Buffer>& buffer, bool region) {
  for (const PackedParameter& p : packing_.parameters)
    p.parameter->value = Tensor(buffer, region ? p.region_at : p.full_at, p.compute, p.parameter->shape);
}

void GroupValues::gather(Stream& stream) {
  const std::shared_ptr<Buffer>& to = gathering_.slot->take(*this);
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = address(own_, p.own_at);
    c.out = address(to, p.full_at);
    c.count = p.counts[static_cast<size_t>(place_.shard_rank())];
    c.counts = p.counts.data();
    c.dtype = p.compute;
    c.async_input = true;
    span.push_back(c);
  }
  gathering_.work = gathering_.last = place_.shards->run(Channel::fsdp_gather, span, &stream);
}

void GroupValues::prefetch(Stream& stream) {
  if (storage_ != Storage::gathered || unsharded_ || gathering_.work != nullptr) return;
  gathering_.slot = gathering_.shares_slots ? place_.values->find_free() : &gathering_.own;
  if (gathering_.slot != nullptr) gather(stream);
}

void GroupValues::wait_gathered(Stream& stream) {
  if (gathering_.work == nullptr) {
    gathering_.slot = gathering_.shares_slots ? place_.values->find(stream) : &gathering_.own;
    if (gathering_.slot == nullptr)
      fail(Code::invalid_state, "unit ", name_,
           ": every slot of gathered values is in use; set reshard_after_forward = 0 for units inside of "
           "others");
    gather(stream);
  }
  wait_or_break(*place_.shards, [&] { gathering_.work->order(stream); });
  gathering_.work = nullptr;
}

void GroupValues::unshard(Stream& stream) {
  if (unsharded_) return;
  if (updating_) fail(Code::invalid_state, "unit ", name_, ": unshard between begin_update and end_update");
  switch (storage_) {
    case Storage::whole: break;
    case Storage::region:
      fence_->wait_ready();
      show(region_.readable, true);
      break;
    case Storage::gathered:
      wait_gathered(stream);
      show(gathering_.slot->buffer, false);
      break;
  }
  unsharded_ = true;
}

void GroupValues::reshard() {
  if (!unsharded_) return;
  unsharded_ = false;
  if (storage_ == Storage::whole) return;
  for (const PackedParameter& p : packing_.parameters) p.parameter->value = Tensor();
  if (gathering_.slot != nullptr) gathering_.slot->user = nullptr;
  gathering_.slot = nullptr;
}

bool GroupValues::drop(Stream& stream) {
  if (unsharded_) return false;
  if (gathering_.work != nullptr) wait_or_break(*place_.shards, [&] { gathering_.work->order(stream); });
  gathering_.work = nullptr;
  gathering_.slot->user = nullptr;
  gathering_.slot = nullptr;
  return true;
}

void GroupValues::release(Stream& stream) {
  updating_ = true;
  if (fence_) fence_->release();
  if (gathering_.slot != nullptr) drop(stream);  // gathered ahead: old values
}

void GroupValues::wait_released(Stream& stream) {
  if (fence_) fence_->wait_released();
  if (gathering_.last != nullptr)
    wait_or_break(*place_.shards, [&] { gathering_.last->order_input(stream); });
  gathering_.last = nullptr;
}

void GroupValues::publish(bool cast, Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (cast && p.has_copy() && p.parameter->shard.count() != 0)
      place_.ops->cast(p.parameter->shard, p.parameter->shard_copy, stream);
  updating_ = false;
  if (!fence_) return;
  stream.synchronize();
  fence_->publish();
}

void GroupValues::count(MemoryUse& use) const {
  const GroupBytes& b = packing_.bytes;
  use.master += b.masters;
  if (storage_ == Storage::region) {
    use.region_rows += b.own;
    return;
  }
  use.master += b.own_masters;
  use.copies += b.own_copies;
  use.gathered += gathering_.own.bytes;
}

}  // namespace gangway
