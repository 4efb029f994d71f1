#include "parallel/pipeline/runtime.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/interrupt.h"
#include "base/refusal.h"
#include "gang/agreement.h"
#include "parallel/fsdp/wrap.h"
#include "parallel/pipeline/checker.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/generators.h"

namespace gangway {
namespace {

bool has(const Schedule& schedule, bool (*wanted)(ActionKind)) {
  for (const ScheduleRow& row : schedule.rows)
    for (const Action& action : row)
      if (wanted(action.kind)) return true;
  return false;
}

bool has_fsdp(const Schedule& schedule) {
  return has(schedule, [](ActionKind kind) { return !has_microbatch(kind); });
}

Schedule computations(const PipelineOptions& options, int ranks, int microbatches) {
  if (options.own_schedule == nullptr)
    return make_schedule(options.schedule, {ranks, microbatches, options.stages_per_rank});
  const Schedule& own = *options.own_schedule;
  if (own.ranks() != ranks || own.microbatches != microbatches)
    fail(Code::invalid_argument, "pipeline: the schedule is for ", own.ranks(), " ranks and ",
         own.microbatches, " microbatches, but pp is ", ranks, " and the step has ", microbatches,
         " microbatches");
  return own;
}

std::string key_of(const Context& ctx, const Specs& microbatch) {
  std::string key = ctx.training ? "train" : "eval";
  for (const Spec& spec : microbatch) key += " " + spec.text();
  return key;
}

std::string bytes_of(const MessageHeader& header) {
  return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

}  // namespace

Schedule pipeline_schedule(const PipelineOptions& options, int ranks, int microbatches, int most_unsharded) {
  Schedule schedule = computations(options, ranks, microbatches);
  if (!has(schedule, [](ActionKind kind) { return is_send(kind) || is_receive(kind); }))
    schedule = with_communication(schedule);
  if (most_unsharded > 0 && !has_fsdp(schedule)) schedule = with_fsdp(schedule, most_unsharded);
  check_schedule(schedule);
  return schedule;
}

std::vector<int> pipeline_stages(const PipelineOptions& options, int ranks) {
  if (options.own_schedule != nullptr) return options.own_schedule->stage_rank;
  return make_schedule(options.schedule, {ranks, 2 * ranks, options.stages_per_rank}).stage_rank;
}

// The state of one pass.
class Pipeline::Pass final : public KnownSpecs {
 public:
  Pass(Pipeline& pipeline, const Context& ctx, const std::vector<Values>& inputs, Recompute recompute,
       LossSink& loss, std::span<const Documents> documents)
      : ctx(ctx),
        inputs(inputs),
        documents(documents),
        recompute(recompute),
        loss(loss),
        microbatches_(static_cast<int>(inputs.size())) {
    for (const Values& microbatch : inputs)
      stage_inputs_.push_back(&pipeline.stage_inputs_.at(key_of(ctx, specs_of(microbatch))));
    frame_at_.assign(static_cast<size_t>(pipeline.cut_->last_stage() + 1) * inputs.size(), -1);
  }

  const Specs* inputs_of(int stage, int microbatch) const override {
    const Specs& specs = (*stage_inputs_[static_cast<size_t>(microbatch)])[static_cast<size_t>(stage)];
    return specs.empty() ? nullptr : &specs;
  }

  // Sets the rows of the context's microbatch. Some actions have none.
  void set_rows(Context& ctx) const {
    if (ctx.microbatch < 0) return;
    for (int i = 0; i < ctx.microbatch; ++i) ctx.first_row += rows_of(i);
    ctx.rows = rows_of(ctx.microbatch);
  }

  // Takes the first free frame for a microbatch on a stage, from its forward until the end of its weight
  // half.
  Frame& take_frame(int stage, int microbatch, std::vector<std::unique_ptr<Frame>>& frames,
                    const std::shared_ptr<Allocator>& memory) {
    size_t index = 0;
    while (index < in_use_.size() && in_use_[index]) ++index;
    if (index == in_use_.size()) in_use_.push_back(false);
    if (index == frames.size()) frames.push_back(std::make_unique<Frame>(memory));
    in_use_[index] = true;
    frame_at_[place(stage, microbatch)] = static_cast<int>(index);
    Frame& frame = *frames[index];
    frame.reset();
    frame.id = {ctx.step, microbatch, stage};
    frame.recompute = recompute;
    return frame;
  }
  Frame& frame(int stage, int microbatch, std::vector<std::unique_ptr<Frame>>& frames) const {
    return *frames[static_cast<size_t>(frame_at_[place(stage, microbatch)])];
  }
  void give_frame(int stage, int microbatch, std::vector<std::unique_ptr<Frame>>& frames) {
    frame(stage, microbatch, frames).reset();
    in_use_[static_cast<size_t>(frame_at_[place(stage, microbatch)])] = false;
  }

  Context ctx;
  const std::vector<Values>& inputs;
  const std::span<const Documents> documents;
  const Recompute recompute;
  LossSink& loss;
  // By microbatch, for those whose backward has not run yet.
  std::vector<Values> losses;

 private:
  int rows_of(int microbatch) const {
    return static_cast<int>(inputs[static_cast<size_t>(microbatch)][0].dim(0));
  }
  size_t place(int stage, int microbatch) const {
    return static_cast<size_t>(stage * microbatches_ + microbatch);
  }
  const int microbatches_;
  std::vector<const StageInputs*> stage_inputs_;
  std::vector<int> frame_at_;
  std::vector<bool> in_use_;
};

Pipeline::Pipeline(std::unique_ptr<StageCut> cut, const PipelineOptions& options, Gangs& gangs, Ops& ops,
                   std::shared_ptr<Allocator> memory, std::vector<std::unique_ptr<Frame>>& frames)
    : cut_(std::move(cut)),
      options_(options),
      gangs_(gangs),
      ops_(ops),
      memory_(std::move(memory)),
      frames_(frames) {}

Pipeline::~Pipeline() = default;

namespace {

// For each stage of this rank, the parameter groups that hold a parameter of the stage.
std::vector<std::vector<ParameterGroup*>> groups_by_stage(const StageCut& cut, const FsdpState& fsdp) {
  std::vector<std::vector<ParameterGroup*>> all(cut.stages().size());
  for (size_t s = 0; s < cut.stages().size(); ++s) {
    if (!cut.is_local(static_cast<int>(s))) continue;
    std::set<const Parameter*> used;
    for (size_t i = cut.stages()[s].first; i < cut.stages()[s].end; ++i)
      for (const NamedParameter& p : named_parameters(cut.chain().child(i))) used.insert(p.parameter.get());
    for (const auto& group : fsdp.groups())
      if (std::any_of(group->parameters().begin(), group->parameters().end(),
                      [&](const NamedParameter& p) { return used.contains(p.parameter.get()); }))
        all[s].push_back(group.get());
  }
  return all;
}

// The largest number of parameter groups that a row of a caller's schedule has unsharded at the same time.
int most_groups_of(const ScheduleRow& row, const std::vector<std::vector<ParameterGroup*>>& by_stage) {
  std::set<int> stages;
  size_t most = 0;
  for (const Action& action : row) {
    if (action.kind == ActionKind::reshard) stages.erase(action.stage);
    if (action.kind != ActionKind::unshard) continue;
    stages.insert(action.stage);
    std::set<ParameterGroup*> groups;
    for (const int s : stages)
      groups.insert(by_stage[static_cast<size_t>(s)].begin(), by_stage[static_cast<size_t>(s)].end());
    most = std::max(most, groups.size());
  }
  return static_cast<int>(most);
}

}  // namespace

int Pipeline::most_groups(const FsdpState& fsdp) const {
  const std::vector<std::vector<ParameterGroup*>> by_stage = groups_by_stage(*cut_, fsdp);
  if (const Schedule* const own = options_.own_schedule.get(); own != nullptr && has_fsdp(*own))
    return most_groups_of(own->rows[static_cast<size_t>(cut_->rank())], by_stage);
  std::vector<int> counts;
  for (const auto& groups : by_stage) counts.push_back(static_cast<int>(groups.size()));
  std::sort(counts.rbegin(), counts.rend());
  int most = 0;
  for (size_t i = 0; i < counts.size() && i < static_cast<size_t>(options_.most_unsharded); ++i)
    most += counts[i];
  return most;
}

void Pipeline::bind(FsdpState& fsdp) {
  const std::vector<std::vector<ParameterGroup*>> by_stage = groups_by_stage(*cut_, fsdp);
  for (const auto& parameters : fsdp.groups()) {
    Group group{parameters.get(), {}};
    for (size_t s = 0; s < by_stage.size(); ++s)
      if (std::find(by_stage[s].begin(), by_stage[s].end(), parameters.get()) != by_stage[s].end())
        group.stages.push_back(static_cast<int>(s));
    if (!group.stages.empty()) groups_.push_back(std::move(group));
  }
  tied_ = fsdp.tied();
  messages_ = std::make_unique<Messages>(gangs_.pp(), ops_, cut_->stage_rank());
}

int Pipeline::microbatches(int asked) const {
  const int own =
      options_.own_schedule != nullptr ? options_.own_schedule->microbatches : options_.microbatches;
  if (own != 0 && asked != 1 && asked != own)
    fail(Code::invalid_argument, "step.microbatches = ", asked, ", but the pipeline was made for ", own,
         " (1 takes the pipeline's)");
  return own != 0 ? own : asked;
}

const Schedule& Pipeline::schedule(int microbatches) {
  const auto found = schedules_.find(microbatches);
  if (found != schedules_.end()) return found->second;
  return schedules_
      .emplace(microbatches,
               pipeline_schedule(options_, cut_->ranks(), microbatches, options_.most_unsharded))
      .first->second;
}

bool Pipeline::check(const Context& ctx, const std::vector<Specs>& microbatches) {
  schedule(static_cast<int>(microbatches.size()));
  for (const Specs& microbatch : microbatches) cut_->chain().check_inputs(microbatch);
  return std::all_of(microbatches.begin(), microbatches.end(), [&](const Specs& microbatch) {
    return stage_inputs_.contains(key_of(ctx, microbatch));
  });
}

// Each stage's answer goes to all ranks of the pipeline. The answer is its outputs; nothing if it does not
// know them (then later stages are not asked); or -1 if it refuses.
void Pipeline::exchange_specs(Context ctx, const std::vector<Specs>& microbatches,
                              void (*check_outputs)(const Specs&)) {
  // A fake gang has no peers. A plan (which counts the bytes of one rank) runs over one.
  const bool is_alone = !gangs_.pp()->has_peers();
  for (ctx.microbatch = 0; ctx.microbatch < static_cast<int>(microbatches.size()); ++ctx.microbatch) {
    const Specs& inputs = microbatches[static_cast<size_t>(ctx.microbatch)];
    if (stage_inputs_.contains(key_of(ctx, inputs))) continue;
    StageInputs stage_inputs(cut_->stages().size());
    Specs x{inputs[0]};
    for (int s = 0; s <= cut_->last_stage() && !x.empty(); ++s) {
      stage_inputs[static_cast<size_t>(s)] = x;
      MessageHeader answer;
      std::optional<Error> refusal;
      if (cut_->is_local(s)) {
        refusal = error_thrown_by(
            [&] { answer = MessageHeader::of(outputs_of(ctx, s, x, inputs, check_outputs)); });
        if (refusal) answer.count = -1;
      } else if (is_alone) {
        answer = MessageHeader::of(cut_->output_specs(ctx, s, x));
      }
      if (!is_alone) {
        const int owner = cut_->stage_rank()[static_cast<size_t>(s)];
        const std::string told =
            gangs_.pp()->agreement().broadcast_bytes(Channel::control, bytes_of(answer), owner);
        std::memcpy(&answer, told.data(), sizeof answer);
      }
      if (refusal) throw *refusal;
      if (answer.count < 0) return;  // the rank whose stage refuses throws
      x = answer.specs();
    }
    stage_inputs_[key_of(ctx, inputs)] = std::move(stage_inputs);
  }
}

// The outputs of a stage of this rank for inputs `x`, as its modules compute them.
Specs Pipeline::outputs_of(Context& ctx, int stage, Specs x, const Specs& inputs,
                           void (*check_outputs)(const Specs&)) {
  const Stage& range = cut_->stages()[static_cast<size_t>(stage)];
  const bool last = stage == cut_->last_stage();
  if (last) x.insert(x.end(), inputs.begin() + 1, inputs.end());
  const StackScope scope(ctx.temporaries);
  Specs made = cut_->chain().check_range(ctx, range.first, range.end, x);
  if (last && !made.empty()) check_outputs(made);
  return made;
}

std::vector<Pipeline::Group*> Pipeline::groups_of(int stage) {
  std::vector<Group*> out;
  for (Group& group : groups_)
    if (std::find(group.stages.begin(), group.stages.end(), stage) != group.stages.end())
      out.push_back(&group);
  return out;
}

// Only this pipeline has the gangs of the pairs, so nobody else breaks them.
template <typename Body>
auto Pipeline::or_abort(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    messages_->abort(error);
    throw;
  } catch (...) {
    messages_->abort(Error(Code::aborted, "a stage failed"));
    throw;
  }
}

void Pipeline::run(const Context& ctx, const std::vector<Values>& inputs, Recompute recompute, LossSink& loss,
                   std::span<const Documents> documents) {
  or_abort([&] {
    Pass own(*this, ctx, inputs, recompute, loss, documents);
    own.losses.resize(inputs.size());
    run_pass(own);
  });
}

Values Pipeline::forward(Context& ctx, const Values& inputs) {
  return or_abort([&] { return forward_stages(ctx, inputs); });
}

Values Pipeline::forward_stages(Context& ctx, const Values& inputs) {
  Values x{inputs[0]}, outputs;
  for (int s = 0; s <= cut_->last_stage(); ++s) {
    if (!cut_->is_local(s)) continue;
    poll_interrupt_throttled();
    Messages::ReceivePtr incoming;
    if (s > 0 && !cut_->is_local(s - 1)) {
      incoming = messages_->receive(Direction::forward, cut_->stage_rank()[static_cast<size_t>(s) - 1],
                                    nullptr, ctx.stream);
      x = messages_->wait(incoming, ctx.stream);
    }
    const bool last = s == cut_->last_stage();
    if (last) x.insert(x.end(), inputs.begin() + 1, inputs.end());
    const Stage& stage = cut_->stages()[static_cast<size_t>(s)];
    for (Group* group : groups_of(s)) group->group->unshard(ctx.stream);
    x = cut_->chain().forward_range(ctx, stage.first, stage.end, x, nullptr);
    for (Group* group : groups_of(s)) group->group->reshard();
    if (incoming != nullptr) messages_->release(incoming);
    if (last) {
      outputs = x;
    } else if (!cut_->is_local(s + 1)) {
      Values sent;
      for (const Tensor& y : x) sent.push_back(messages_->pool().copy_of(y, ops_, ctx.stream));
      messages_->send(Direction::forward, cut_->stage_rank()[static_cast<size_t>(s) + 1], std::move(sent),
                      true, ctx.stream);
    }
  }
  messages_->finish(ctx.stream);
  return outputs;
}

void Pipeline::run_pass(Pass& own) {
  const Context& ctx = own.ctx;
  for (Group& group : groups_) {
    group.unsharded = 0;
    group.to_reduce = static_cast<int>(group.stages.size());
  }
  if (tied_ != nullptr && ctx.training) tied_->begin();
  SchedulePass pass(*messages_, schedule(static_cast<int>(own.inputs.size())), cut_->rank(), !ctx.training,
                    &own);
  for (PassAction action; pass.next(action, ctx.stream);) {
    poll_interrupt_throttled();
    const StackScope scope(ctx.temporaries);  // holds the outputs of a forward without a frame
    const Values made = compute(own, action);
    pass.done(made, ctx.stream);
    const bool ended = action.kind == ActionKind::backward || action.kind == ActionKind::weight_gradient;
    if (ended) own.give_frame(action.stage, action.microbatch, frames_);
  }
}

Values Pipeline::compute(Pass& pass, const PassAction& action) {
  const Stage* const stage = &cut_->stages()[static_cast<size_t>(action.stage)];
  const bool last = action.stage == cut_->last_stage();
  Context ctx = pass.ctx;
  ctx.microbatch = action.microbatch;
  pass.set_rows(ctx);
  if (!pass.documents.empty() && action.microbatch >= 0)
    ctx.documents = &pass.documents[static_cast<size_t>(action.microbatch)];
  switch (action.kind) {
    case ActionKind::forward: {
      const Values& given = pass.inputs[static_cast<size_t>(action.microbatch)];
      Values x = action.stage == 0 ? Values{given[0]} : action.inputs;
      if (last) x.insert(x.end(), given.begin() + 1, given.end());
      for (Group* group : groups_of(action.stage)) group->group->unshard(ctx.stream);
      Frame* const frame =
          ctx.training ? &pass.take_frame(action.stage, action.microbatch, frames_, memory_) : nullptr;
      const Values y = cut_->chain().forward_range(ctx, stage->first, stage->end, x, frame);
      if (!last) return y;
      if (ctx.training)
        pass.losses[static_cast<size_t>(action.microbatch)] = y;
      else
        pass.loss.add(y);
      return {};
    }
    case ActionKind::backward:
    case ActionKind::input_gradient: {
      ctx.defer_weight = action.kind == ActionKind::input_gradient;
      for (Group* group : groups_of(action.stage)) {
        group->group->unshard(ctx.stream);
        group->group->gradients().acquire(ctx.stream);
      }
      Frame& frame = pass.frame(action.stage, action.microbatch, frames_);
      const Tensor dx = cut_->chain().backward_range(ctx, stage->first, stage->end, action.inputs, frame);
      if (last) pass.loss.add(std::exchange(pass.losses[static_cast<size_t>(action.microbatch)], {}));
      if (!ctx.defer_weight) frame.run_weight_gradients(ctx);
      return action.stage == 0 ? Values{} : Values{dx};
    }
    case ActionKind::weight_gradient:
      pass.frame(action.stage, action.microbatch, frames_).run_weight_gradients(ctx);
      return {};
    case ActionKind::unshard:
      for (Group* group : groups_of(action.stage))
        if (group->unsharded++ == 0) group->group->values().prefetch(ctx.stream);
      return {};
    case ActionKind::reshard:
      for (Group* group : groups_of(action.stage))
        if (--group->unsharded == 0) group->group->reshard();
      return {};
    case ActionKind::reduce_grad:
      for (Group* group : groups_of(action.stage))
        if (--group->to_reduce == 0) group->group->gradients().weight_half_done(true, ctx.stream);
      return {};
    default: fail(Code::internal, "pipeline: ", text_of(action.kind), " computes nothing");
  }
}

}  // namespace gangway
