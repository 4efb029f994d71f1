// Builds a model: wraps its modules, then takes memory.
//
// The order of the calls is tensor_parallel, context_parallel, recompute, fully_shard or replicate,
// materialize. parallelize does all of them; the first two may be called before it. Only parallelize makes
// the stages of a pipeline; with pp > 1 the other wrapping calls are NOT_SUPPORTED. A call out of order is
// INVALID_STATE, and the text names the call that is missing or came too early. All calls are collective, and
// if one rank refuses, all do.
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

  // Makes a parameter group of each module that matches `pattern`. "" is the root, which gets the parameters
  // that are in no other group and must come last.
  void fully_shard(const std::string& pattern, const ShardOptions& options);
  void replicate(const ShardOptions& options);  // wraps the whole model with NO_SHARD
  void recompute(const RecomputeOptions& options);
  // Splits modules over tp by a plan (tensor/apply.h). With tp 1 it only checks the plan.
  void tensor_parallel(const TensorOptions& options);
  void context_parallel(ContextMethod method);  // spreads attention over cp
  // Makes the default parameter groups. A language model has one for the embedding, one for each block and
  // one for norm and head; a tied embedding is in the root's group. Other models have one for each child of
  // the root and one for the root. The order is: tensor parallel, context parallel, recomputation, offload of
  // activations, stages, fully_shard, materialize.
  void parallelize(const ParallelOptions& options);
  // Takes memory. Each rank initializes the rows that it owns.
  void materialize(uint64_t seed, DType master);
  // Replaces materialize for groups that were materialized one by one. Such a model cannot compute. `aliases`
  // are the further names of parameters that the caller's modules tie.
  void adopt(const std::vector<const FsdpState*>& groups, std::vector<NamedParameter> aliases);
  // Returns whether no call has changed the module tree or taken memory yet.
  bool pristine() const { return pristine_; }

 private:
  void wrap_recomputed(const RecomputeOptions& options);
  void offload_activations();
  void cut(Chain& chain, std::vector<Stage> stages, const ParallelOptions& options);
  void set_stages(const ShardOptions& options);
  void list_parameters();
  std::string signature_of_whole(const ParallelOptions& options) const;
  std::string signature(uint64_t seed, DType master) const;  // what ranks compare in materialize
  // INVALID_STATE: materialize has been called.
  void check_describing(const char* call) const;
  // INVALID_STATE: the mesh has an axis for which the tree was not prepared. With tp > 1 every parameter
  // needs a placement over tp (by tensor_parallel, or by a module that splits itself). With cp > 1 attention
  // must be distributed over cp.
  void check_degrees(const char* call) const;
  void check_wrappable(const char* call) const;  // check_describing and check_degrees
  // INVALID_STATE: fully_shard or replicate has been called.
  void check_no_groups(const char* call) const;
  // INVALID_STATE: tensor_parallel has been called.
  void check_not_split(const char* call) const;
  // Returns whether cp > 1 and context_parallel is still to be done.
  bool spreads_context() const;

  ModelParts& parts_;
  bool pristine_ = true;
};

}  // namespace gangway
