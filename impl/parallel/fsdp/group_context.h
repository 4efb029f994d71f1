// What the units of one model share: operations and gangs, buffers that they use in turn.
//
// Thread rule: values.
#pragma once

#include <string>

#include "gang/gang.h"
#include "ops/ops.h"
#include "parallel/fsdp/buffers.h"

namespace gangway {

struct GroupContext {
  Ops* ops = nullptr;
  GangPtr shards;       // "dp_shard+cp"; null: not sharded
  GangPtr replicas;     // the ranks that hold equal shards
  std::string axis;     // name of `shards` in layouts
  bool regions = true;  // shared regions where they are possible
  AllGatherBuffers* values = nullptr;
  GradientBuffers* gradients = nullptr;
  PendingReductions* line = nullptr;

  int shard_ranks() const { return shards == nullptr ? 1 : shards->size(); }
  int shard_rank() const { return shards == nullptr ? 0 : shards->rank(); }
  int replica_ranks() const { return replicas->size(); }
  std::shared_ptr<Allocator> plain() const { return ops->device().allocator(); }
  // Memory that the peers of a reduction reach directly.
  std::shared_ptr<Allocator> reachable() const {
    return shard_ranks() > 1 ? shards->allocator() : replicas->allocator();
  }
};

}  // namespace gangway
