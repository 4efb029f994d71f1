// The parallel layer. Belongs here: what wraps modules so that ranks share them (units of sharded values and gradients,
// replicas, redistributions, recomputation), shard groups, the norm over a mesh. Does not: what a module computes (nn), the
// order of a training step (train), how bytes travel (gang).
//
// A module bound to gangs: the tree with its wrappers, its storage and everything a step needs to run it.
// This is what a gw_module becomes by parallelize or materialize; train, checkpoint and capi work on it.
//
// Life: described -> wrapped (fully_shard, replicate, recompute) -> materialised. Calls out of order are
// INVALID_STATE and name the call that lacks. Set-up calls are collective over the gangs and their refusals
// are agreed.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mesh/gangs.h"
#include "nn/layers.h"
#include "parallel/memory_use.h"
#include "parallel/options.h"

namespace gangway {

class FsdpState;  // fsdp_state.h: all units of one model, the fence, the rings
class ShardGroup;

class Model {
 public:
  // gangs null: a private gang of one. The device is the root gang's.
  Model(ModulePtr root, std::shared_ptr<Gangs> gangs);
  ~Model();

  Module& root() { return *root_; }
  Gangs& gangs() { return *gangs_; }
  Ops& ops() { return *ops_; }
  Device& device();
  Stack& temporaries() { return temporaries_; }
  // Frames are reused; index = microbatch in flight.
  Frame& frame(size_t index);

  // --- wrapping, before materialize
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
  bool materialized() const { return materialized_; }
  // No call has changed the module tree or taken memory yet.
  bool pristine() const { return pristine_; }

  // --- running (materialised; collective)
  // Local: throws what training would refuse (INVALID_STATE: no values; NOT_SUPPORTED: a fake gang).
  void check_trainable(const char* call) const;
  // Likewise: INVALID_STATE for a model of shard groups, whose forward is the caller's.
  void check_computes(const char* call) const;
  // Later work of `stream` comes after all that earlier calls have put on theirs. Calls that take a stream do it by
  // themselves: they may come on one stream after another.
  void order(Stream& stream);
  // With the run's seed and this rank's data coordinate; of a run on `stream`.
  Context context(Stream& stream);
  void set_caller(void* caller) { caller_ = caller; }  // opaque: Context::caller of every run
  // Local, before forward: throws what it would refuse of its arguments, as far as that can be seen without running a
  // module or looking at values (nn/ids.h does); gives what the outputs will be (none: that is not known).
  Specs check_forward(const Context& ctx, std::span<const Spec> inputs, const Frame* frame);
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame);
  Values backward(Context& ctx, std::span<const Tensor> dy,
                  Frame& frame);  // both halves, reductions per unit
  // After the last microbatch: outstanding reductions, unsharded accumulations, replicas. Blocks on a CPU.
  void finish_gradients(Stream& stream);
  void set_is_last_backward(bool last);  // no_sync until the last
  bool is_last_backward() const;
  // Local. Units that a forward kept for a backward that does not come: that of a frozen part, or of a forward
  // that was given up.
  void reshard();
  void zero_gradients(Stream& stream);
  // Local, alone: what a run that failed has left unsharded or under update is at rest again.
  void give_up_run(Stream& stream);
  // Local. While the result lives, a forward awaits its backward and updates are refused. A forward that is given up
  // may leave units unsharded: the next update reshards them.
  std::shared_ptr<const void> await_backward();
  // sqrt etc. of the sum over shards and mesh; replicated parameters once. p = infinity: max. Collective.
  double gradient_norm(double p, Stream& stream);
  // Scales gradients down to a norm of at most `most`; the norm before. Collective, refusals are agreed: ranks whose
  // collectors are at different places would sum up different gradients.
  double clip_gradients(double most, double p, Stream& stream);

  void scale_gradients(double factor, Stream& stream);  // local shards

  // Local: throws what begin_update would refuse, for the check phase of calls that go through the fence.
  void check_update() const;
  // The ownership fence around any write of values: publishes `released` for every unit and waits for all
  // readers ...
  void begin_update(Stream& stream);
  // ... then casts masters into the compute dtype (unless whoever wrote them did), publishes `ready`, empties
  // gradients.
  void end_update(Stream& stream, bool copies_written = false);

  // --- looking in
  const std::vector<NamedParameter>& parameters() const { return listing_.parameters; }
  const NamedParameter& parameter(const std::string& name) const;  // aliases too; NOT_FOUND
  // Whole value in the master's dtype, on every rank. Collective.
  Tensor gather(const Parameter& parameter, Stream& stream);
  // This rank's box of the gradient, zero where nothing was added (shard_grad alone is undefined then).
  // Local.
  Tensor gradient(Parameter& parameter, Stream& stream);
  // The full gradient of this rank's own backward while there is one (else absent), zero likewise. Local.
  Tensor full_gradient(Parameter& parameter, Stream& stream);
  // Whole gradient likewise, in the gradient's dtype; zeros where nothing was added. Ends reductions first.
  // Collective, refusals are agreed, as in clip_gradients.
  Tensor gather_gradient(const Parameter& parameter, Stream& stream);
  // Values of the global shape, or of this rank's box alone, in any floating dtype, into the own shard. Each rank may
  // give either. Collective; goes through the version gate.
  void assign(Parameter& parameter, const Tensor& values, Stream& stream);
  // MISMATCH, on all ranks: values that replicas hold are not equal. Collective.
  void check_replicas(Stream& stream);
  MemoryUse memory() const;
  // `bytes` are part of MemoryUse::optimizer for as long as the result lives.
  std::shared_ptr<const uint64_t> count_optimizer(uint64_t bytes);
  FsdpState& domain() { return *domain_; }

 private:
  friend std::shared_ptr<Model> model_from_groups(const std::vector<std::shared_ptr<ShardGroup>>& groups);
  struct Listing {
    std::vector<NamedParameter> parameters;
    std::vector<NamedParameter> aliases;
  };
  Listing list() const;
  std::string facts(uint64_t seed, DType master) const;  // what materialize compares
  void check_describing(const char* call) const;  // INVALID_STATE after materialize; NOT_SUPPORTED degrees
  void check_running(const char* call) const;
  void enter(const char* call, Stream& stream);  // check_running, order
  Context run_of(const Context& ctx, bool training) const;
  void drop_given_up();

  ModulePtr root_;
  std::shared_ptr<Gangs> gangs_;
  std::unique_ptr<Ops> ops_;
  Stack temporaries_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::shared_ptr<FsdpState> domain_;
  Listing listing_;  // empty before materialize
  Recompute selective_ = Recompute::none;
  std::vector<std::weak_ptr<const uint64_t>> optimizers_;  // bytes of each
  void* caller_ = nullptr;
  bool computes_ = true;  // has a forward of its own
  uint64_t seed_ = 0;
  std::vector<std::weak_ptr<const void>> awaiting_;
  bool given_up_ = false;  // a forward, since the last reshard
  bool materialized_ = false;
  bool pristine_ = true;
};

}  // namespace gangway
