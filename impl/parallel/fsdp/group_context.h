// What the units of one model share: operations and gangs, buffers that they use in turn.
//
// Thread rule: values.
#pragma once

#include <string>

#include "mesh/gangs.h"
#include "ops/ops.h"
#include "parallel/fsdp/buffers.h"
#include "parallel/fsdp/pending_reductions.h"
#include "parallel/fsdp/side_stream.h"

namespace gangway {

struct GroupContext {
  Ops* ops = nullptr;
  Gangs* gangs = nullptr;
  GangPtr shards;   // "dp_shard+cp"; null: not sharded
  GangPtr keepers;  // ranks of `shards` that keep the values between them after forward; null: there are none
  GangPtr replicas;  // the ranks that hold equal shards
  std::string axis;  // name of `shards` in layouts
  std::string replica_axes;
  bool regions = true;  // shared regions where they are possible
  SideStream* offload =
      nullptr;  // values and gradients rest on the host, and travel on this; null: they do not
  AllGatherBuffers* values = nullptr;
  GradientBuffers* gradients = nullptr;
  PendingReductions* reductions = nullptr;

  int shard_ranks() const { return shards == nullptr ? 1 : shards->size(); }
  int shard_rank() const { return shards == nullptr ? 0 : shards->rank(); }
  int replica_ranks() const { return replicas->size(); }
  // `replicas` x the axes over which a gradient is partial besides (empty: none).
  GangPtr replicas_with(const std::string& partial_axes) const {
    return partial_axes.empty() ? replicas : gangs->by_axes(replica_axes + "+" + partial_axes);
  }
  std::shared_ptr<Allocator> plain() const { return ops->device().allocator(); }
  // Where shards and their gradients rest.
  std::shared_ptr<Allocator> rest() const {
    return offload == nullptr ? plain() : ops->device().pinned_allocator();
  }
  // Memory that the peers of a reduction reach directly.
  std::shared_ptr<Allocator> reachable() const {
    return shard_ranks() > 1 ? shards->allocator() : replicas->allocator();
  }
};

}  // namespace gangway
