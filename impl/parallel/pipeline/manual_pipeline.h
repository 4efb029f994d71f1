// A pipeline whose stages the caller computes: the caller asks for the next action, computes it, and returns
// its outputs. It is meant for programs with their own tensors, autograd and training loop.
//
// Several tensors may travel between two stages, and their shapes travel with them. The outputs of forwards
// and the gradients are copied. Ranks may be threads of one process.
//
// Thread rule: one thread at a time; all ranks of the gang take part in each pass. A pipeline that is
// destroyed in the middle of a pass breaks its gang, so that peers do not wait for it.
#pragma once

#include <memory>
#include <optional>

#include "parallel/options.h"
#include "parallel/pipeline/pass.h"
#include "parallel/stream_order.h"

namespace gangway {

struct ManualPipelineOptions {
  // Has the schedule. `microbatches` is at least 1; the caller splits the model into stages, so the options
  // of the split have no effect.
  PipelineOptions pipeline;
  // 0: no UNSHARD, RESHARD and REDUCE_GRAD. Otherwise the largest number of stages that are unsharded at a
  // time.
  int shard_actions = 0;
};

class ManualPipeline {
 public:
  // Collective; rank r of `gang` runs row r. All ranks agree on a refusal. MISMATCH: the ranks have different
  // schedules.
  ManualPipeline(Gang& gang, const ManualPipelineOptions& options);
  ~ManualPipeline();
  ManualPipeline(const ManualPipeline&) = delete;
  ManualPipeline& operator=(const ManualPipeline&) = delete;

  const Schedule& schedule() const { return schedule_; }
  int rank() const { return gang_->rank(); }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage + 1 == schedule_.stages(); }
  Device& device() { return gang_->device(); }

  // false: passes run only forwards, from the next pass on. Equal on all ranks. INVALID_STATE: a pass is
  // under way.
  void set_training(bool training);
  bool training() const { return training_; }
  // As SchedulePass::next and done. next() returns false when the pass has ended; the following call begins
  // another pass.
  bool next(PassAction& action, Stream& stream);
  bool waits_for_done() const { return pass_ && pass_->waits_for_done(); }
  void done(std::span<const Tensor> outputs, Stream& stream);
  // Lets the caller keep this input of the last next() for as long as it wants.
  void lend(const Tensor& input) { messages_->pool().lend(input); }

 private:
  const std::unique_ptr<Ops> ops_;
  const GangPtr gang_;
  const Schedule schedule_;
  const std::unique_ptr<Messages> messages_;
  StreamOrder order_;
  std::optional<SchedulePass> pass_;  // none between two passes
  bool training_ = true;
};

}  // namespace gangway
