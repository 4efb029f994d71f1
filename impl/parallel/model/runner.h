// Running a model that is materialised: forward, backward, what becomes of gradients, updates. Collective, unless a line
// says local.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "parallel/model/parts.h"

namespace gangway {

class ModelRunner {
 public:
  explicit ModelRunner(ModelParts& parts) : parts_(parts) {}

  // Local: throws what training would refuse (INVALID_STATE: no values; NOT_SUPPORTED: a fake gang).
  void check_trainable(const char* call) const;
  // Likewise: INVALID_STATE for a model of shard groups, whose forward is the caller's.
  void check_computes(const char* call) const;
  // Likewise: NOT_SUPPORTED for a model that is cut into stages.
  void check_whole(const char* call) const;
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
  // ... then casts masters into the compute dtype (unless `copies_written`), publishes `ready`, empties
  // gradients.
  void end_update(Stream& stream, bool copies_written = false);

 private:
  void enter(const char* call, Stream& stream);  // check_materialized, order
  Context context_of(const Context& ctx, bool training) const;
  void drop_given_up();

  ModelParts& parts_;
  void* caller_ = nullptr;
  std::vector<std::weak_ptr<const void>> awaiting_;
  bool given_up_ = false;  // a forward, since the last reshard
};

}  // namespace gangway
