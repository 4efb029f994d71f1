// One pass of a rank through its row of a schedule. The pass moves the tensors between the stages and returns
// the next action to compute, with its inputs; the caller computes it. A model of this library (runtime.h)
// and a caller's own computations therefore run by the same code.
//
//   SchedulePass pass(messages, schedule, rank);
//   for (PassAction action; pass.next(action, stream);) pass.done(compute(action), stream);
//
// A send starts after its computation, and a receive starts early, both where the schedule has them. The pass
// waits for a receive only where its tensors are used. Two stages of one rank pass their tensors on without a
// send.
//
// Thread rule: one thread at a time; all ranks of the gang run the pass together.
#pragma once

#include <span>
#include <vector>

#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/trace.h"

namespace gangway {

struct PassAction {
  // F, B, I, W, or an action of FSDP. The pass itself runs sends and receives.
  ActionKind kind = ActionKind::forward;
  int stage = 0;
  int microbatch = -1;
  // F: the outputs of the previous stage; empty for the first stage. B and I: the gradients of this stage's
  // outputs, absent where an output is not of a floating dtype; empty for the last stage. The tensors stay
  // valid until the end of this stage's B or W of this microbatch.
  Values inputs;
};

// Knows the shapes of forward messages before they are sent.
class KnownSpecs {
 public:
  virtual ~KnownSpecs() = default;
  // What stage `stage` gets from the previous stage; null: not known, so a header travels with the tensors.
  // All ranks return the same.
  virtual const Specs* inputs_of(int stage, int microbatch) const = 0;
};

class SchedulePass {
 public:
  // `schedule` is checked and has sends and receives; it and `messages` outlive the pass. `forward_only` runs
  // only the forwards and what they need. If `known` is null, no shapes are known. `events` may be null;
  // otherwise the pass appends its trace to it.
  SchedulePass(Messages& messages, const Schedule& schedule, int rank, bool forward_only = false,
               const KnownSpecs* known = nullptr, std::vector<TraceEvent>* events = nullptr);

  // Returns false when the row is done and all that was sent has been received. INVALID_STATE: done() has to
  // come first.
  bool next(PassAction& action, Stream& stream);
  // Ends the action of next(). F: `outputs` are the outputs of the stage. B and I: `outputs` are the
  // gradients of the stage's inputs, one for each, absent only where the input is not of a floating dtype.
  // They are copied. The outputs of the last stage and the gradients of the first stage's inputs stay with
  // the caller. INVALID_ARGUMENT: no output, too many, or a gradient whose shape or dtype is not that of its
  // input. INVALID_STATE: next() has to come first.
  void done(std::span<const Tensor> outputs, Stream& stream);
  bool waits_for_done() const { return current_ != nullptr; }

 private:
  // The state of one microbatch on one stage of this rank.
  struct MicrobatchState {
    Messages::ReceivePtr input, gradient;  // received from another rank
    Values x, dy;                          // made by another stage of this rank
    Specs inputs, outputs;
    Values to_next, to_previous;  // made and not sent yet
  };
  MicrobatchState& at(int stage, int microbatch) {
    return states_[static_cast<size_t>(stage * schedule_.microbatches + microbatch)];
  }
  int rank_of(int stage) const { return schedule_.stage_rank[static_cast<size_t>(stage)]; }
  bool skipped(const Action& action) const;
  void move(const Action& action, Stream& stream);
  Values inputs_of(const Action& action, Stream& stream);
  const Values& awaited(const Action& action, const Messages::ReceivePtr& incoming, Stream& stream);
  void end_forward(const Action& action, std::span<const Tensor> outputs, Stream& stream);
  void end_backward(const Action& action, std::span<const Tensor> gradients, Stream& stream);
  void release(MicrobatchState& state);
  // Runs `body` and traces its times.
  template <typename Body>
  void traced(TraceEvent::Kind kind, const Action& action, Body&& body);
  bool is_traced() const { return events_ != nullptr || tracer_.on(); }
  void add_to_trace(TraceEvent::Kind kind, const Action& action, int64_t start_ns);

  Messages& messages_;
  const Schedule& schedule_;
  const int rank_;
  const bool forward_only_;
  const KnownSpecs* const known_;
  std::vector<TraceEvent>* const events_;
  Tracer& tracer_;  // of this rank
  std::vector<MicrobatchState> states_;
  size_t next_ = 0;
  const Action* current_ = nullptr;
  int64_t started_ns_ = 0;  // when next() returned the action; 0: not traced
};

}  // namespace gangway
