#include "parallel/pipeline/pass.h"

#include <algorithm>

namespace gangway {
namespace {

Specs floating(const Specs& specs) {
  Specs out;
  for (const Spec& spec : specs)
    if (is_floating(spec.dtype)) out.push_back(spec);
  return out;
}

template <typename... Parts>
[[noreturn]] void refuse(const Action& action, const Parts&... why) {
  fail(Code::invalid_argument, "pipeline: ", text_of(action), ": ", why...);
}

void check_outputs(const Action& action, std::span<const Tensor> outputs) {
  if (outputs.empty()) refuse(action, "a stage before the last gives at least one output");
  if (outputs.size() > MessageHeader::kMostTensors)
    refuse(action, outputs.size(), " outputs; the most is ", MessageHeader::kMostTensors);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i]) refuse(action, "output ", i, " is absent");
}

void check_gradients(const Action& action, const Specs& inputs, std::span<const Tensor> gradients) {
  if (gradients.size() != inputs.size())
    refuse(action, gradients.size(), " gradients for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Spec& wanted = inputs[i];
    if (!is_floating(wanted.dtype)) continue;
    if (!gradients[i])
      refuse(action, "the gradient of input ", i, " (", wanted.text(),
             ") is absent; zeros are given as such");
    if (gradients[i].dtype() != wanted.dtype || !(gradients[i].shape() == wanted.shape))
      refuse(action, "the gradient of input ", i, " is ", gradients[i].text(), ", the input ", wanted.text());
  }
}

}  // namespace

SchedulePass::SchedulePass(Messages& messages, const Schedule& schedule, int rank, bool forward_only,
                           const KnownSpecs* known, std::vector<TraceEvent>* events)
    : messages_(messages),
      schedule_(schedule),
      rank_(rank),
      forward_only_(forward_only),
      known_(known),
      events_(events),
      tracer_(messages.gang().owner()->tracer()),
      states_(static_cast<size_t>(schedule.stages() * schedule.microbatches)) {}

template <typename Body>
void SchedulePass::traced(TraceEvent::Kind kind, const Action& action, Body&& body) {
  const bool on = is_traced();
  const int64_t start = on ? Tracer::now_ns() : 0;
  body();
  if (on) add_to_trace(kind, action, start);
}

void SchedulePass::add_to_trace(TraceEvent::Kind kind, const Action& action, int64_t start_ns) {
  const TraceEvent event{kind, action, start_ns, Tracer::now_ns()};
  if (events_ != nullptr) events_->push_back(event);
  if (!tracer_.on()) return;
  add(tracer_, event);
  if (action.stage < 0) tracer_.flush();  // the pass has ended
}

bool SchedulePass::skipped(const Action& action) const {
  if (!forward_only_) return false;
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::send_forward:
    case ActionKind::recv_forward:
    case ActionKind::unshard:
    case ActionKind::reshard: return false;
    default: return true;
  }
}

bool SchedulePass::next(PassAction& action, Stream& stream) {
  if (current_ != nullptr)
    fail(Code::invalid_state, "pipeline: ", text_of(*current_), " is not done yet; done comes before next");
  const ScheduleRow& row = schedule_.rows[static_cast<size_t>(rank_)];
  for (; next_ < row.size(); ++next_) {
    const Action& here = row[next_];
    if (skipped(here)) continue;
    if (is_send(here.kind) || is_receive(here.kind)) {
      traced(TraceEvent::Kind::move, here, [&] { move(here, stream); });
      continue;
    }
    current_ = &here;
    ++next_;
    action.kind = here.kind;
    action.stage = here.stage;
    action.microbatch = here.microbatch;
    action.inputs = inputs_of(here, stream);
    if (is_traced()) started_ns_ = Tracer::now_ns();
    return true;
  }
  traced(TraceEvent::Kind::wait, Action{-1}, [&] { messages_.finish(stream); });
  return false;
}

void SchedulePass::move(const Action& action, Stream& stream) {
  MicrobatchState& state = at(action.stage, action.microbatch);
  switch (action.kind) {
    case ActionKind::send_forward: {
      const int next = action.stage + 1;
      const bool with_header = known_ == nullptr || known_->inputs_of(next, action.microbatch) == nullptr;
      messages_.send(Direction::forward, rank_of(next), std::move(state.to_next), with_header, stream);
      state.to_next.clear();
      return;
    }
    case ActionKind::send_backward:
      messages_.send(Direction::backward, rank_of(action.stage - 1), std::move(state.to_previous), false,
                     stream);
      state.to_previous.clear();
      return;
    case ActionKind::recv_forward: {
      const Specs* specs = known_ == nullptr ? nullptr : known_->inputs_of(action.stage, action.microbatch);
      state.input = messages_.receive(Direction::forward, rank_of(action.stage - 1), specs, stream);
      return;
    }
    default: {
      // The gradients of this stage's outputs have the shapes of the outputs.
      const Specs specs = floating(state.outputs);
      if (state.outputs.empty()) refuse(action, "the forward of this microbatch comes later");
      state.gradient = messages_.receive(Direction::backward, rank_of(action.stage + 1), &specs, stream);
    }
  }
}

const Values& SchedulePass::awaited(const Action& action, const Messages::ReceivePtr& incoming,
                                    Stream& stream) {
  const Values* arrived = nullptr;
  traced(TraceEvent::Kind::wait, action, [&] { arrived = &messages_.wait(incoming, stream); });
  return *arrived;
}

Values SchedulePass::inputs_of(const Action& action, Stream& stream) {
  if (!is_compute(action.kind) || action.kind == ActionKind::weight_gradient) return {};
  MicrobatchState& state = at(action.stage, action.microbatch);
  if (action.kind == ActionKind::forward) {
    const Values& x = state.input != nullptr ? awaited(action, state.input, stream) : state.x;
    state.inputs = specs_of(x);
    return x;
  }
  const Values& dy = state.gradient != nullptr ? awaited(action, state.gradient, stream) : state.dy;
  if (dy.empty()) return {};
  Values all;
  size_t taken = 0;
  for (const Spec& output : state.outputs) all.push_back(is_floating(output.dtype) ? dy[taken++] : Tensor());
  return all;
}

void SchedulePass::done(std::span<const Tensor> outputs, Stream& stream) {
  if (current_ == nullptr)
    fail(Code::invalid_state, "pipeline: nothing is to be done; next comes before done");
  const Action action = *current_;
  if (started_ns_ != 0) add_to_trace(TraceEvent::Kind::work, action, std::exchange(started_ns_, 0));
  switch (action.kind) {
    case ActionKind::forward: end_forward(action, outputs, stream); break;
    case ActionKind::backward:
      end_backward(action, outputs, stream);
      release(at(action.stage, action.microbatch));
      break;
    case ActionKind::input_gradient: end_backward(action, outputs, stream); break;
    case ActionKind::weight_gradient: release(at(action.stage, action.microbatch)); break;
    default: break;
  }
  current_ = nullptr;
}

// Copies the outputs even for a stage of this rank: the next stage's weight half, which reads them, may come
// after that of the stage that made them.
void SchedulePass::end_forward(const Action& action, std::span<const Tensor> outputs, Stream& stream) {
  MicrobatchState& state = at(action.stage, action.microbatch);
  if (action.stage + 1 < schedule_.stages()) {
    check_outputs(action, outputs);
    state.outputs = specs_of(outputs);
    Values made;
    for (const Tensor& y : outputs) made.push_back(messages_.pool().copy_of(y, messages_.ops(), stream));
    if (rank_of(action.stage + 1) == rank_)
      at(action.stage + 1, action.microbatch).x = std::move(made);
    else
      state.to_next = std::move(made);
  }
  if (forward_only_) release(state);
}

void SchedulePass::end_backward(const Action& action, std::span<const Tensor> gradients, Stream& stream) {
  if (action.stage == 0) return;
  const MicrobatchState& state = at(action.stage, action.microbatch);
  check_gradients(action, state.inputs, gradients);
  Values made;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (is_floating(state.inputs[i].dtype))
      made.push_back(messages_.pool().copy_of(gradients[i], messages_.ops(), stream));
  if (rank_of(action.stage - 1) == rank_)
    at(action.stage - 1, action.microbatch).dy = std::move(made);
  else
    at(action.stage, action.microbatch).to_previous = std::move(made);
}

void SchedulePass::release(MicrobatchState& state) {
  for (const Messages::ReceivePtr& incoming : {state.input, state.gradient})
    if (incoming != nullptr) messages_.release(incoming);
  for (const Values* values : {&state.x, &state.dy})
    for (const Tensor& tensor : *values) messages_.pool().release(tensor);
  state.input = state.gradient = nullptr;
  state.x.clear();
  state.dy.clear();
}

}  // namespace gangway
