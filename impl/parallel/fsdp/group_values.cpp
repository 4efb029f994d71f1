#include "parallel/fsdp/group_values.h"

#include "base/interrupt.h"
#include "parallel/memory_use.h"

namespace gangway {

// Zeroed, because padding must be zero and is never written.
void GroupValues::allocate() { masters_ = zeroed(place_.rest(), packing_.bytes.masters); }

void GroupValues::fill(uint64_t seed, Stream& stream) {
  for (const PackedParameter& packed : packing_.parameters) {
    poll_interrupt_throttled();
    Parameter& p = *packed.parameter;
    const Tensor own = own_rows(packed);
    p.shard = packed.has_copy() ? own_box(masters_, packed.master_at, packed.master, packed) : own;
    p.shard_copy = packed.has_copy() ? own : Tensor();
    p.value = value_at_rest(own);
    if (p.shard.count() == 0) continue;
    initialize_box(*place_.ops, stream, p, seed, p.box(), p.shard);
    if (packed.has_copy()) place_.ops->cast(p.shard, p.shard_copy, stream);
  }
}

void GroupValues::show(const std::shared_ptr<Buffer>& buffer) {
  for (const PackedParameter& p : packing_.parameters)
    p.parameter->value = whole_view(buffer, p.full_at, p.compute, p);
}

void GroupValues::hide() {
  for (const PackedParameter& p : packing_.parameters) p.parameter->value = Tensor();
}

void GroupValues::unshard(Stream& stream) {
  if (unsharded_) return;
  if (updating_)
    fail(Code::invalid_state, "parameter group ", name_, ": unshard between begin_update and end_update");
  make_whole(stream);
  unsharded_ = true;
}

void GroupValues::reshard() {
  if (unsharded_) drop_whole();
}

void GroupValues::drop_whole(bool wanted_next) {
  unsharded_ = false;
  forget_whole(wanted_next);
}

void GroupValues::release(Stream&) { updating_ = true; }

void GroupValues::publish(bool cast, Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (cast && p.has_copy() && p.parameter->shard.count() != 0)
      place_.ops->cast(p.parameter->shard, p.parameter->shard_copy, stream);
  updating_ = false;
}

void GroupValues::count(MemoryUse& use) const {
  (place_.offload != nullptr ? use.host : use.master) += packing_.bytes.masters;
}

void GroupValues::count_private_rows(MemoryUse& use) const {
  (place_.offload != nullptr ? use.host : use.master) += packing_.bytes.own_masters;
  (place_.offload != nullptr ? use.host : use.copies) += packing_.bytes.own_copies;
}

}  // namespace gangway
