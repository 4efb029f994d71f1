// Building a model: wrapping its modules, then taking memory.
//
// Order of the calls: recompute, fully_shard or replicate, materialize; parallelize does all. A call out of order is
// INVALID_STATE and names the call that is missing. All are collective, and their refusals agreed.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>

#include "parallel/model/parts.h"
#include "parallel/options.h"

namespace gangway {

class ModelBuilder {
 public:
  explicit ModelBuilder(ModelParts& parts) : parts_(parts) {}

  // Each match of `pattern` becomes a unit; "" is the root (what nested units do not own), which must come
  // last.
  void fully_shard(const std::string& pattern, const ShardOptions& options);
  void replicate(const ShardOptions& options);  // the whole model, NO_SHARD
  void recompute(const RecomputeOptions& options);
  // Default units of a language model (embedding | each block | norm + head; tied: embedding in the root),
  // else each child of the root | the root; in architecture order: recomputation, then fully_shard; then
  // materialize.
  void parallelize(const ParallelOptions& options);
  // Collective. Takes memory; each owner fills its rows.
  void materialize(uint64_t seed, DType master);
  // Instead of materialize: groups that were materialised each by itself. The model computes nothing.
  void adopt(const std::vector<const FsdpState*>& groups);
  // No call has changed the module tree or taken memory yet.
  bool pristine() const { return pristine_; }

 private:
  void list_parameters();
  std::string facts(uint64_t seed, DType master) const;  // what materialize compares
  void check_describing(const char* call) const;  // INVALID_STATE after materialize; NOT_SUPPORTED degrees

  ModelParts& parts_;
  bool pristine_ = true;
};

}  // namespace gangway
