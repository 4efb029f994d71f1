#include "parallel/fsdp/version_gate.h"

#include <atomic>

namespace gangway {

// Each rank has a cache line of its own, because only that rank writes both counters.
struct alignas(64) VersionGate::Counters {
  std::atomic<uint64_t> ready;
  std::atomic<uint64_t> released;
};

size_t VersionGate::bytes(int ranks) { return static_cast<size_t>(ranks) * sizeof(Counters); }

VersionGate::VersionGate(GangPtr gang, const SharedRegion& region, size_t offset, std::string group)
    : gang_(std::move(gang)), memory_(region.writable), offset_(offset) {
  ready_name_ = "the values of parameter group " + group;
  released_name_ = "the readers of parameter group " + group;
}

VersionGate::Counters& VersionGate::of(int rank) const {
  return reinterpret_cast<Counters*>(static_cast<char*>(memory_->data()) + offset_)[rank];
}

void VersionGate::wait_ready() {
  if (memory_->data() == nullptr || seen_ready_ == version_) return;
  for (int r = 0; r < gang_->size(); ++r)
    gang_->shared_memory()->wait(of(r).ready, version_, r, ready_name_.c_str());
  seen_ready_ = version_;
}

void VersionGate::release() {
  if (memory_->data() != nullptr) gang_->shared_memory()->publish(of(gang_->rank()).released, version_);
}

void VersionGate::wait_released() {
  if (memory_->data() == nullptr) return;
  for (int r = 0; r < gang_->size(); ++r)
    gang_->shared_memory()->wait(of(r).released, version_, r, released_name_.c_str());
}

void VersionGate::publish() {
  ++version_;
  if (memory_->data() != nullptr) gang_->shared_memory()->publish(of(gang_->rank()).ready, version_);
}

}  // namespace gangway
