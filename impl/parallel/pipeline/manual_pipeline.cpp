#include "parallel/pipeline/manual_pipeline.h"

#include "gang/agreement.h"
#include "parallel/collective_call.h"
#include "parallel/pipeline/runtime.h"

namespace gangway {
namespace {

Schedule agreed_schedule(Gang& gang, const ManualPipelineOptions& options) {
  Schedule schedule;
  const std::optional<Error> refusal = error_thrown_by([&] {
    check(options.pipeline);
    if (options.shard_actions < 0)
      fail(Code::invalid_argument, "pipeline: shard_actions is ", options.shard_actions, ", below 0");
    const Schedule* const own = options.pipeline.own_schedule.get();
    const int microbatches = own != nullptr ? own->microbatches : options.pipeline.microbatches;
    if (own == nullptr && microbatches < 1)
      fail(Code::invalid_argument, "pipeline: microbatches is ", microbatches, ", below 1");
    schedule = pipeline_schedule(options.pipeline, gang.size(), microbatches, options.shard_actions);
  });
  gang.agreement().agree(refusal, refusal ? "" : "pipeline\n" + to_csv(schedule));
  return schedule;
}

}  // namespace

ManualPipeline::ManualPipeline(Gang& gang, const ManualPipelineOptions& options)
    : ops_(make_ops(gang.owner()->device_ptr())),
      gang_(gang.duplicate("pipeline")),
      schedule_(agreed_schedule(*gang_, options)),
      messages_(CollectiveCall(std::span(&gang_, 1), "pipeline").run([&] {
        return std::make_unique<Messages>(gang_, *ops_, schedule_.stage_rank);
      })),
      order_(gang_->device().stream()) {}

ManualPipeline::~ManualPipeline() {
  if (pass_ && !gang_->error())
    messages_->abort(Error(Code::aborted, "the pipeline ended in the middle of a pass"));
}

void ManualPipeline::set_training(bool training) {
  if (pass_) fail(Code::invalid_state, "pipeline: a pass is under way; its end comes first");
  training_ = training;
}

bool ManualPipeline::next(PassAction& action, Stream& stream) {
  if (!pass_) pass_.emplace(*messages_, schedule_, gang_->rank(), !training_);
  if (pass_->waits_for_done()) return pass_->next(action, stream);  // refuses without breaking the gang
  order_.enter(stream);
  const bool more =
      CollectiveCall(messages_->gangs(), "pipeline").run([&] { return pass_->next(action, stream); });
  if (!more) pass_.reset();
  return more;
}

void ManualPipeline::done(std::span<const Tensor> outputs, Stream& stream) {
  if (!pass_) fail(Code::invalid_state, "pipeline: nothing is to be done; next comes before done");
  order_.enter(stream);
  pass_->done(outputs, stream);
}

}  // namespace gangway
