#include "parallel/fsdp/region_values.h"

#include "parallel/memory_use.h"

namespace gangway {

void RegionValues::open_region(const SharedRegion& region, const SharedRegion& gates, size_t gate_offset) {
  region_ = region;
  gate_.emplace(place_.shards, gates, gate_offset, name_);
}

Tensor RegionValues::own_rows(const PackedParameter& p) const {
  const size_t first = static_cast<size_t>(place_.shard_rank()) * p.piece_bytes(p.compute);
  return own_box(region_.writable, p.full_at + first, p.compute, p);
}

void RegionValues::make_whole(Stream&) {
  gate_->wait_ready();
  show(region_.readable);
}

void RegionValues::forget_whole(bool) { hide(); }

void RegionValues::release(Stream& stream) {
  GroupValues::release(stream);
  gate_->release();
}

void RegionValues::wait_released(Stream&) { gate_->wait_released(); }

void RegionValues::publish(bool cast, Stream& stream) {
  GroupValues::publish(cast, stream);
  stream.synchronize();  // peers read the shared rows on the host as soon as the counter changes
  gate_->publish();
}

void RegionValues::count(MemoryUse& use) const {
  GroupValues::count(use);
  use.region_rows += packing_.bytes.own;
}

}  // namespace gangway
