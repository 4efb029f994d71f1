// One pass of a rank through its row of a schedule. It moves the tensors between stages and says what to compute next,
// with the tensors to compute from; who calls it computes. So a model of this library (runtime.h) and a caller's own
// compute run by the same code.
//
//   SchedulePass pass(messages, schedule, rank);
//   for (PassAction action; pass.next(action, stream);) pass.done(compute(action), stream);
//
// Sends start behind the computation and receives early, where the schedule has them; a receive is waited for where its
// tensors are used. Stages of one rank hand over without a send.
//
// Thread rule: one thread at a time; all ranks of the gang pass together.
#pragma once

#include <span>
#include <vector>

#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/trace.h"

namespace gangway {

struct PassAction {
  ActionKind kind = ActionKind::forward;  // F, B, I, W, or one of FSDP's; sends and receives are the pass's
  int stage = 0;
  int microbatch = -1;
  // F: what the stage before made (the first stage: nothing). B, I: gradients of what this stage made, absent where that
  // is no floating tensor (the last stage: nothing). They stay until the end of the stage's B or W of this microbatch.
  Values inputs;
};

// What a message of a stage's forward will be, where it is known before.
class KnownSpecs {
 public:
  virtual ~KnownSpecs() = default;
  // Of what stage `stage` takes from the stage before; null: the dims travel with the tensors. Equal on all ranks.
  virtual const Specs* inputs_of(int stage, int microbatch) const = 0;
};

class SchedulePass {
 public:
  // `schedule`: checked, with sends and receives; it and `messages` outlive the pass. `forward_only`: its forwards and
  // what they need. `known` null: nothing is known. `events` (or null) gets what happens.
  SchedulePass(Messages& messages, const Schedule& schedule, int rank, bool forward_only = false,
               const KnownSpecs* known = nullptr, std::vector<TraceEvent>* events = nullptr);

  // False: the row is done, and all that was sent has been received. INVALID_STATE: done() comes first.
  bool next(PassAction& action, Stream& stream);
  // The action of next() is computed. F: `outputs` are the stage's outputs; B, I: the gradients of its inputs, one each,
  // absent only where the input is no floating tensor. The last forward's and the first stage's gradients are the
  // caller's. They are copied. INVALID_ARGUMENT: none, too many, or another shape or dtype than that of the input. INVALID_STATE: next()
  // comes first.
  void done(std::span<const Tensor> outputs, Stream& stream);
  bool waits_for_done() const { return current_ != nullptr; }

 private:
  // Of one microbatch on one stage of this rank.
  struct Place {
    Messages::ArrivalPtr input, gradient;  // from another rank
    Values x, dy;                          // from a stage of this rank
    Specs inputs, outputs;
    Values to_next, to_previous;  // made, not sent yet
  };
  Place& at(int stage, int microbatch) {
    return places_[static_cast<size_t>(stage * schedule_.microbatches + microbatch)];
  }
  int rank_of(int stage) const { return schedule_.stage_rank[static_cast<size_t>(stage)]; }
  bool skipped(const Action& action) const;
  void move(const Action& action, Stream& stream);
  Values inputs_of(const Action& action, Stream& stream);
  const Values& awaited(const Action& action, const Messages::ArrivalPtr& arrival, Stream& stream);
  void end_forward(const Action& action, std::span<const Tensor> outputs, Stream& stream);
  void end_backward(const Action& action, std::span<const Tensor> gradients, Stream& stream);
  void release(Place& place);
  // Runs `body`, which the trace gets.
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
  Tracer& tracer_;  // the rank's
  std::vector<Place> places_;
  size_t next_ = 0;
  const Action* current_ = nullptr;
  int64_t started_ns_ = 0;  // when next() gave it out; 0: not traced
};

}  // namespace gangway
