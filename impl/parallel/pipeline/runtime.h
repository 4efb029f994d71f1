// Runs the stages of a model that is cut (stage.h) as a schedule says: microbatches through their frames, FSDP's groups by
// the schedule's UNSHARD, RESHARD and REDUCE_GRAD.
//
// A stage's groups are unsharded and resharded by the schedule alone; the wrappers around modules leave both to it. Full
// gradients are summed unsharded, in the order of the weight halves, which is that of the microbatches in every built-in
// schedule, and are reduced once, by REDUCE_GRAD. A group that several stages of one rank use (a tied embedding on a V
// map) is resharded and reduced with the last of them.
//
// Thread rule: one thread at a time; run and learn are collective over the pp gang.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/fsdp/fsdp_state.h"
#include "parallel/pipeline/pass.h"
#include "parallel/pipeline/stage.h"

namespace gangway {

// Stages, sends and receives of a pass with so many microbatches, and FSDP's actions with at most `most_unsharded` stages
// unsharded at a time (0: none are added), checked. INVALID_ARGUMENT by the schedule's own rules, and for an own schedule
// of other ranks or microbatches.
Schedule pipeline_schedule(const PipelineOptions& options, int ranks, int microbatches, int most_unsharded);
// The rank of each stage, whatever the number of microbatches.
std::vector<int> pipeline_stages(const PipelineOptions& options, int ranks);

// What the last stage gives, in order of the microbatches. Fused losses (Context::fused_loss) are made by then.
class LossSink {
 public:
  virtual ~LossSink() = default;
  virtual void add(const Values& outputs) = 0;
};

class Pipeline {
 public:
  // `cut` has the model's chain; groups, memory and frames are the model's.
  Pipeline(std::unique_ptr<StageCut> cut, const PipelineOptions& options, Gangs& gangs, Ops& ops,
           std::shared_ptr<Allocator> memory, std::vector<std::unique_ptr<Frame>>& frames);
  ~Pipeline();

  StageCut& cut() { return *cut_; }
  const StageCut& cut() const { return *cut_; }
  bool has_loss() const { return cut_->is_here(cut_->last_stage()); }
  // Groups whose values are unsharded at the same time on this rank, at most: room for so many is needed.
  int most_groups(const FsdpState& fsdp) const;
  size_t message_bytes() const { return messages_ == nullptr ? 0 : messages_->pool().bytes(); }
  // Collective over pp, when all groups stand and have their storage.
  void bind(FsdpState& fsdp);

  // The number of microbatches of a step that asks for so many. INVALID_ARGUMENT: the model was made for another one.
  int microbatches(int asked) const;
  // Local, in a check phase: throws what the schedule refuses of such microbatches (inputs, then targets). False: what
  // travels between the stages is not known yet, learn comes first.
  bool check(const Context& ctx, const std::vector<Specs>& microbatches);
  // In the next check phase, on all ranks together: each stage says what it gives for what it gets. Throws on the rank
  // whose stage refuses; `check_outputs` looks at what the last stage gives, if that is known.
  void learn(Context ctx, const std::vector<Specs>& microbatches, void (*check_outputs)(const Specs&));
  // One pass: forwards, and with ctx.training backwards. `inputs`: of each microbatch, inputs, then targets.
  void run(const Context& ctx, const std::vector<Values>& inputs, Recompute recompute, LossSink& loss);

 private:
  struct Group {
    ParamGroup* group;
    std::vector<int> stages;  // of this rank, that use it
    int unsharded = 0, to_reduce = 0;
  };
  class Pass;
  using Travelling = std::vector<Specs>;  // what each stage takes; from the first that is not known on: empty

  const Schedule& schedule(int microbatches);
  Specs made_of(Context& ctx, int stage, Specs x, const Specs& inputs, void (*check_outputs)(const Specs&));
  void run_pass(const Context& ctx, const std::vector<Values>& inputs, Recompute recompute, LossSink& loss);
  Values compute(Pass& pass, const PassAction& action);
  std::vector<Group*> groups_of(int stage);

  std::unique_ptr<StageCut> cut_;
  const PipelineOptions options_;
  Gangs& gangs_;
  Ops& ops_;
  const std::shared_ptr<Allocator> memory_;  // of the frames
  std::vector<std::unique_ptr<Frame>>& frames_;
  std::unique_ptr<Messages> messages_;
  std::vector<Group> groups_;
  TiedParameters* tied_ = nullptr;
  std::map<int, Schedule> schedules_;             // by microbatches
  std::map<std::string, Travelling> travelling_;  // by the specs of a microbatch
};

}  // namespace gangway
