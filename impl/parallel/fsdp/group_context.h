// What a parameter group gets from its model: operations, gangs, and the buffers that it shares with the
// others.
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
  GangPtr shards;  // over dp_shard x cp; null: not sharded
  // The ranks of `shards` over which the values stay sharded after forward (reshard_after_forward > 1), or
  // null.
  GangPtr post_forward_gang;
  GangPtr replicas;          // the ranks that hold equal shards
  std::string axis;          // name of `shards` in layouts
  std::string replica_axes;  // name of `replicas`
  bool regions = true;       // uses shared regions where they are possible
  // The stream for copies between device and host if shards and their gradients are offloaded, else null.
  SideStream* offload = nullptr;
  bool registers = false;  // the engines of these gangs register the buffers of their collectives
  AllGatherBuffers* values = nullptr;
  GradientBuffers* gradients = nullptr;
  PendingReductions* reductions = nullptr;

  int shard_ranks() const { return shards == nullptr ? 1 : shards->size(); }
  int shard_rank() const { return shards == nullptr ? 0 : shards->rank(); }
  int replica_ranks() const { return replicas->size(); }
  // Returns the gang of `replicas` x the axes over which a gradient is partial (may be empty).
  GangPtr replicas_with(const std::string& partial_axes) const {
    return partial_axes.empty() ? replicas : gangs->by_axes(replica_axes + "+" + partial_axes);
  }
  std::shared_ptr<Allocator> plain() const { return ops->device().allocator(); }
  // Memory for shards and their gradients.
  std::shared_ptr<Allocator> rest() const {
    return offload == nullptr ? plain() : ops->device().pinned_allocator();
  }
  // Memory that peers access directly in a reduction.
  std::shared_ptr<Allocator> reachable() const {
    return shard_ranks() > 1 ? shards->allocator() : replicas->allocator();
  }
  // Memory of the inputs and outputs of collectives over `shards`: memory that their engine registers, or
  // `otherwise`.
  std::shared_ptr<Allocator> moved(const std::shared_ptr<Allocator>& otherwise) const {
    return registers ? shards->registrable() : otherwise;
  }
};

}  // namespace gangway
