// Checksums by which the ranks of a step see that values which must be equal on several ranks are not. They
// are summed where the values are, and exchanged with the numbers of the step; check_replicas then names the
// element.
//
// Thread rule: one thread at a time; local.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// This rank's checksums. Each is that of the trainable parameters which the named ranks must hold equal, and
// 0 if there are none. Frozen parameters and buffers are left out: no step changes them.
struct ReplicaSums {
  uint32_t rows = 0;     // over dp_replicate
  uint32_t whole = 0;    // over all data ranks: those of NO_SHARD
  uint32_t unsplit = 0;  // over tp: those that tp does not split
};

// The number of i64 that add_replica_sums adds to.
constexpr int64_t kReplicaSums = 4;

// Returns whether ranks may hold equal values. The result is equal on all ranks, even if a pipeline rank has
// no parameters, because what ranks compare is collective.
bool has_replicas(const FsdpState& state);
// Adds this rank's checksums to `sums`, i64 [kReplicaSums] on the device.
void add_replica_sums(const FsdpState& state, Ops& ops, const Tensor& sums, Stream& stream);
ReplicaSums replica_sums(std::span<const int64_t> sums);

}  // namespace gangway
