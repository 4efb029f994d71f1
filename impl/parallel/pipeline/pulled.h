// A pipeline of stages that the caller computes by itself: it asks for the next action, computes it, and hands the outputs
// back. For a program with tensors, autograd and a loop of its own.
//
// Several tensors may travel between two stages; their dims travel with them. What a forward gives to the next stage is
// copied, and so are gradients. Ranks may be threads of one process.
//
// Thread rule: one thread at a time; all ranks of the gang take part in each pass. A pipeline that goes in the middle of a
// pass breaks its gang, so that peers do not wait for it.
#pragma once

#include <memory>
#include <optional>

#include "parallel/options.h"
#include "parallel/pipeline/pass.h"
#include "parallel/stream_order.h"

namespace gangway {

struct PulledOptions {
  PipelineOptions pipeline;  // the schedule; microbatches are at least 1, the split of stages is the caller's
  int shard_actions = 0;     // 0: no UNSHARD, RESHARD and REDUCE_GRAD; else most stages unsharded at a time
};

class PulledPipeline {
 public:
  // Collective; rank r of `gang` does row r. Refusals are agreed; MISMATCH: ranks with different schedules.
  PulledPipeline(Gang& gang, const PulledOptions& options);
  ~PulledPipeline();
  PulledPipeline(const PulledPipeline&) = delete;
  PulledPipeline& operator=(const PulledPipeline&) = delete;

  const Schedule& schedule() const { return schedule_; }
  int rank() const { return gang_->rank(); }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage + 1 == schedule_.stages(); }
  Device& device() { return gang_->device(); }

  // Forwards alone, from the next pass on. Equal on all ranks. INVALID_STATE: in the middle of a pass.
  void set_training(bool training);
  bool training() const { return training_; }
  // As SchedulePass::next and done. False: the pass is over; the next call begins another one.
  bool next(PassAction& action, Stream& stream);
  bool waits_for_done() const { return pass_ && pass_->waits_for_done(); }
  void done(std::span<const Tensor> outputs, Stream& stream);
  // The caller may hold this input of the last next() for as long as it wants.
  void lend(const Tensor& input) { messages_->pool().lend(input); }

 private:
  const std::unique_ptr<Ops> ops_;
  const GangPtr gang_;
  const Schedule schedule_;
  const std::unique_ptr<Messages> messages_;
  StreamOrder order_;
  std::optional<SchedulePass> pass_;  // none: between two passes
  bool training_ = true;
};

}  // namespace gangway
