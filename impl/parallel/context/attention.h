// Attention over a sequence that is split over the ranks of a gang (context parallelism). Each method
// replaces nn's AttentionCore by a class of its own, in one file (ring.cpp, all_gather.cpp, all_to_all.cpp),
// that decides how a rank's queries reach the keys of other ranks. All methods split the sequence by
// balance.h. They can therefore be exchanged for each other, and they give the same numbers up to rounding.
//
// Documents and windows are masked by positions in the whole sequence, so that documents need not divide by
// anything. Blocks of keys that none of a rank's queries see are not computed. A sink is added once.
//
// A layer saves this rank's own part of its activations. Backward receives again what forward received from
// peers.
//
// Thread rule: that of a module; forward and backward are collective over the gang, on its channel `cp`.
#pragma once

#include <memory>
#include <span>

#include "gang/gang.h"
#include "nn/attention_core.h"
#include "parallel/context/balance.h"
#include "parallel/options.h"

namespace gangway {

const char* name(ContextMethod method) noexcept;

class ContextAttention : public AttentionCore {
 public:
  ContextAttention(const AttentionCoreOptions& options, GangPtr gang)
      : AttentionCore(options, {gang->rank(), gang->size()}), gang_(std::move(gang)) {}

  int ranks() const { return gang_->size(); }
  bool takes_columns() const override { return false; }  // q, k and v travel between ranks
  // INVALID_ARGUMENT: the method cannot divide this number of heads over the ranks.
  virtual void check_heads(int64_t /*heads*/, int64_t /*kv_heads*/) const {}

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;

 protected:
  // These two compute attention over two or more ranks, for at least one token. Their contracts are those of
  // AttentionCore::attend and attend_backward, which are called in all other cases.
  virtual void attend_across(Context& ctx, const AttentionArgs& args) = 0;
  virtual void attend_across_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) = 0;

  int rank() const { return gang_->rank(); }
  // Starts all records in one launch. `in` and `out` of each record are contiguous, and the caller keeps them
  // until it has called order().
  WorkPtr start(Context& ctx, std::span<const Collective> records) const;
  // Orders later work of the context's stream after `work`.
  void order(Context& ctx, const WorkPtr& work) const;
  // As above, and runs the weight gradients that `frame` has deferred while `work` is on its way.
  void order(Context& ctx, const WorkPtr& work, Frame& frame) const;

 private:
  void attend(Context& ctx, const AttentionArgs& args) final;
  void attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) final;

  const GangPtr gang_;
};

std::shared_ptr<ContextAttention> make_context_attention(ContextMethod method,
                                                         const AttentionCoreOptions& options, GangPtr gang);

// The maker of each method, defined in the method's own file.
using ContextAttentionMaker = std::shared_ptr<ContextAttention> (*)(const AttentionCoreOptions& options,
                                                                    GangPtr gang);
std::shared_ptr<ContextAttention> make_ring_attention(const AttentionCoreOptions& options, GangPtr gang);
std::shared_ptr<ContextAttention> make_all_gather_attention(const AttentionCoreOptions& options,
                                                            GangPtr gang);
std::shared_ptr<ContextAttention> make_all_to_all_attention(const AttentionCoreOptions& options,
                                                            GangPtr gang);

// Replaces every attention core below `root` by that of `method`, which keeps its parameters. The call is
// local, but all ranks of the gang make it. `tp` is the degree of tensor parallelism, which divides the heads
// too. With a gang of one rank nothing changes. A refused call changes nothing. INVALID_ARGUMENT: there is no
// attention below `root`, or the method cannot divide its heads. INVALID_STATE: a method has been applied
// already.
void apply_context(const ModulePtr& root, const GangPtr& gang, ContextMethod method, int tp = 1);
// Makes the checks of apply_context and changes nothing.
void check_context(const ModulePtr& root, const GangPtr& gang, ContextMethod method, int tp = 1);
// Returns whether there is attention below `root` and every core of it is split over exactly `ranks` ranks.
bool is_context_parallel(const ModulePtr& root, int ranks);

}  // namespace gangway
