// Runs the stages of a model that is cut (stage.h) by a schedule: it computes microbatches in their frames,
// and unshards, reshards and reduces FSDP's parameter groups where the schedule has UNSHARD, RESHARD and
// REDUCE_GRAD.
//
// Only the schedule unshards and reshards the parameter groups of a stage; the wrappers around modules do
// neither. Full gradients are summed unsharded, in the order of the weight halves, which in every built-in
// schedule is the order of the microbatches. REDUCE_GRAD reduces them once. A parameter group that several
// stages of one rank use (a tied embedding with V-shaped stages) is resharded and reduced with the last of
// these stages.
//
// Thread rule: one thread at a time; run and exchange_specs are collective over the pp gang.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/documents.h"
#include "parallel/fsdp/fsdp_state.h"
#include "parallel/pipeline/pass.h"
#include "parallel/pipeline/stage.h"

namespace gangway {

// Returns a checked schedule for passes of `microbatches` microbatches, with sends and receives, and with
// FSDP's actions for at most `most_unsharded` unsharded stages at a time (0: without them). INVALID_ARGUMENT:
// the rules of the schedule are not met, or the caller's own schedule is for another number of ranks or
// microbatches.
Schedule pipeline_schedule(const PipelineOptions& options, int ranks, int microbatches, int most_unsharded);
// The rank of each stage, which does not depend on the number of microbatches.
std::vector<int> pipeline_stages(const PipelineOptions& options, int ranks);

// Takes the outputs of the last stage, in the order of the microbatches. Fused losses (Context::fused_loss)
// have their values by then.
class LossSink {
 public:
  virtual ~LossSink() = default;
  virtual void add(const Values& outputs) = 0;
};

class Pipeline {
 public:
  // `cut` cuts the model's chain. `memory` and `frames` are the model's.
  Pipeline(std::unique_ptr<StageCut> cut, const PipelineOptions& options, Gangs& gangs, Ops& ops,
           std::shared_ptr<Allocator> memory, std::vector<std::unique_ptr<Frame>>& frames);
  ~Pipeline();

  StageCut& cut() { return *cut_; }
  const StageCut& cut() const { return *cut_; }
  bool has_loss() const { return cut_->is_local(cut_->last_stage()); }
  // The largest number of parameter groups whose values are unsharded at the same time on this rank. The
  // slots of memory must hold that many.
  int most_groups(const FsdpState& fsdp) const;
  size_t message_bytes() const { return messages_ == nullptr ? 0 : messages_->pool().bytes(); }
  // Collective over pp. All parameter groups exist and have their storage.
  void bind(FsdpState& fsdp);

  // The number of microbatches of a step that asks for `asked`. INVALID_ARGUMENT: the model was made for
  // another number.
  int microbatches(int asked) const;
  // Checks the microbatches, each of which has its inputs, then its targets. Local; runs in a check phase.
  // Throws if the schedule cannot run them. Returns false if the shapes between the stages are not known yet;
  // then exchange_specs() must be called first.
  bool check(const Context& ctx, const std::vector<Specs>& microbatches);
  // Collective; runs in the next check phase. Each stage computes the shapes of its outputs from those of its
  // inputs. Throws on the rank whose stage refuses its inputs. `check_outputs` checks the outputs of the last
  // stage, if they are known.
  void exchange_specs(Context ctx, const std::vector<Specs>& microbatches,
                      void (*check_outputs)(const Specs&));
  // Runs one pass: all forwards, and with ctx.training all backwards. Each entry of `inputs` has the inputs
  // of a microbatch, then its targets. The context's first_row is that of the first microbatch. `documents`:
  // those of each microbatch; empty: the context's.
  void run(const Context& ctx, const std::vector<Values>& inputs, Recompute recompute, LossSink& loss,
           std::span<const Documents> documents = {});
  // Computes the stages one after the other, each once, and returns the outputs of the last one; empty on the
  // other ranks. For inference, of which no backward comes: the outputs lie in the context's temporaries.
  Values forward(Context& ctx, const Values& inputs);

 private:
  // Runs `body`. If it fails, the gangs of the pairs break.
  template <typename Body>
  auto or_abort(Body&& body);
  Values forward_stages(Context& ctx, const Values& inputs);
  struct Group {
    ParameterGroup* group;
    std::vector<int> stages;  // the stages of this rank that use the group
    int unsharded = 0, to_reduce = 0;
  };
  class Pass;
  // The inputs of each stage; empty from the first stage on whose inputs are not known.
  using StageInputs = std::vector<Specs>;

  const Schedule& schedule(int microbatches);
  Specs outputs_of(Context& ctx, int stage, Specs x, const Specs& inputs,
                   void (*check_outputs)(const Specs&));
  void run_pass(Pass& own);
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
  std::map<int, Schedule> schedules_;                // by number of microbatches
  std::map<std::string, StageInputs> stage_inputs_;  // by the specs of a microbatch
};

}  // namespace gangway
