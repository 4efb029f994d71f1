// Building a model: wrapping its modules, then taking memory.
//
// Order of the calls: tensor_parallel, context_parallel, recompute, fully_shard or replicate, materialize;
// parallelize does all, or what is left of it after the first two. Stages of pp are made by parallelize alone
// (NOT_SUPPORTED otherwise). A call out of order is INVALID_STATE and names the call that is missing or has
// come before. All are collective, and their refusals agreed.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "parallel/model/parts.h"
#include "parallel/options.h"

namespace gangway {

class Chain;   // nn/chain.h
struct Stage;  // parallel/pipeline/stage.h

class ModelBuilder {
 public:
  explicit ModelBuilder(ModelParts& parts) : parts_(parts) {}

  // Each match of `pattern` becomes a parameter group; "" is the root (what nested parameter groups do not
  // own), which must come last.
  void fully_shard(const std::string& pattern, const ShardOptions& options);
  void replicate(const ShardOptions& options);  // the whole model, NO_SHARD
  void recompute(const RecomputeOptions& options);
  // Splits modules over tp as a plan says (tensor/apply.h); with tp 1 the plan is only checked.
  void tensor_parallel(const TensorOptions& options);
  void context_parallel(ContextMethod method);  // spreads attention over cp
  // Default parameter groups of a language model (embedding | each block | norm + head; tied: embedding in
  // the root), else each child of the root | the root. In this order: tensor parallel, context parallel,
  // recomputation, offload of activations, stages, fully_shard, materialize.
  void parallelize(const ParallelOptions& options);
  // Collective. Takes memory; each owner fills its rows.
  void materialize(uint64_t seed, DType master);
  // Instead of materialize: groups that were materialised each by itself. The model computes nothing.
  void adopt(const std::vector<const FsdpState*>& groups);
  // No call has changed the module tree or taken memory yet.
  bool pristine() const { return pristine_; }

 private:
  void offload_activations();
  void cut(Chain& chain, std::vector<Stage> stages, const ParallelOptions& options);
  void set_stages(const ShardOptions& options);
  void list_parameters();
  std::string facts_of_whole(const ParallelOptions& options) const;
  std::string facts(uint64_t seed, DType master) const;  // what materialize compares
  void check_describing(const char* call) const;         // INVALID_STATE after materialize
  void check_wrappable(const char* call) const;  // and where tensor_parallel or context_parallel is missing
  void check_no_groups(const char* call) const;  // INVALID_STATE: it comes before fully_shard and replicate
  void check_not_split(const char* call) const;  // INVALID_STATE: tensor_parallel has been called
  bool spreads_context() const;                  // over cp, which is not done yet

  ModelParts& parts_;
  bool pristine_ = true;
};

}  // namespace gangway
