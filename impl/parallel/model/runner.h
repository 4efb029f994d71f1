// Runs a materialised model: forward, backward, the reduction of gradients, and updates.
//
// Thread rule: one thread at a time; calls are collective unless their comment says local.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "nn/documents.h"
#include "parallel/model/parts.h"

namespace gangway {

class ModelRunner {
 public:
  explicit ModelRunner(ModelParts& parts);

  // Local. INVALID_STATE: the model is not materialised. NOT_SUPPORTED: training over a fake gang.
  void check_trainable(const char* call) const;
  // Local. INVALID_STATE: the model consists of shard groups, whose forward is the caller's; an export is
  // held (FsdpState::check_exports).
  void check_computes(const char* call) const;
  // Local. NOT_SUPPORTED: the model is cut into pipeline stages.
  void check_whole(const char* call) const;
  // Makes later work of `stream` wait for the work of all earlier calls on their streams. Calls that take a
  // stream do this themselves, so each call may use another stream.
  void order(Stream& stream);
  // Returns the context of a run on `stream`, with the seed of the model, this rank's data coordinate, and
  // rows of one document each.
  Context context(Stream& stream);
  const Documents& documents() const { return documents_; }  // those of context()
  void set_caller(void* caller) { caller_ = caller; }  // an opaque pointer: Context::caller of every run
  // Local, before forward. Throws what forward would refuse of its arguments, as far as that is visible
  // without running a module or reading values (nn/ids.h reads them). Returns the dtypes and shapes of the
  // outputs, or nothing if they are unknown.
  Specs check_forward(const Context& ctx, std::span<const Spec> inputs, const Frame* frame);
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame);
  // Runs the input half and, unless they are deferred, the weight tasks, and starts reductions.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame);
  // Call after the last microbatch: starts all remaining reductions and waits for all. Blocks on a CPU.
  void finish_gradients(Stream& stream);
  void set_is_last_backward(bool last);  // false: as no_sync in PyTorch
  bool is_last_backward() const;
  // Local. Reshards the parameter groups that a forward kept unsharded for a backward that will not come,
  // because the part is frozen or the forward was given up.
  void reshard();
  void zero_gradients(Stream& stream);
  // Local, only for a model of one rank: recovers from a run that failed. It reshards all parameter groups
  // and ends an update that has begun.
  void give_up_run(Stream& stream);
  // Local. As long as the result lives, a forward awaits its backward, and updates are refused. A forward
  // that is given up may leave parameter groups unsharded; the next update reshards them.
  std::shared_ptr<const void> await_backward();
  // Local. Notes that this microbatch of a step has `rows` rows over all data coordinates, and returns those
  // of the microbatches before it. One that the step has not had counts as many as this one.
  int64_t rows_before(int64_t step, int microbatch, int64_t rows);
  // Waits for all reductions and returns the norm of all gradients (model/clip.h).
  double gradient_norm(double p, Stream& stream);
  // Scales gradients down to a norm of at most `most` and returns the norm before. Refusals are agreed,
  // so that no rank sums gradients without its peers.
  double clip_gradients(double most, double p, Stream& stream);

  void scale_gradients(double factor, Stream& stream);

  // Local. Throws what begin_update would refuse, for the check phase of calls that write values.
  void check_update() const;
  // Local. Throws what a step refuses of the gradients that it would take (FsdpState::check_reduced).
  void check_reduced(const char* call) const;
  // Values may be written only between begin_update and end_update. begin_update publishes `released` for
  // every parameter group and waits for all readers (fsdp/version_gate.h).
  void begin_update(Stream& stream);
  // Casts master values into the compute dtype (unless `copies_written`), publishes `ready` and empties
  // gradients.
  void end_update(Stream& stream, bool copies_written = false);

 private:
  void enter(const char* call, Stream& stream);  // check_materialized and order
  Context context_of(const Context& ctx, bool training) const;
  void drop_given_up();

  ModelParts& parts_;
  const Documents documents_;
  void* caller_ = nullptr;
  std::vector<std::weak_ptr<const void>> awaiting_;
  struct {
    int64_t step = 0;
    std::map<int, int64_t> ends;  // the rows up to the end of a microbatch
  } rows_;                        // of a loop of the caller's own
  bool given_up_ = false;         // a forward was given up since the last reshard
};

}  // namespace gangway
