#include <gangway/pipeline.h>

#include <algorithm>
#include <array>

#include "gang_handle.h"
#include "parallel/pipeline/manual_pipeline.h"
#include "parallel_options.h"
#include "tensor_handle.h"

using namespace gangway;
using namespace gangway::capi;

struct gw_pipeline : Handle {
  gw_pipeline(GangPtr of, const ManualPipelineOptions& options)
      : gang(std::move(of)), pipeline(*gang, options) {}

  // Sets the views of an action's inputs. It allocates nothing, because the pipeline has already handed out
  // the action and a failure would lose it.
  void show(Values shown) {
    inputs = std::move(shown);
    for (size_t i = 0; i < inputs.size(); ++i)
      views[i] = inputs[i] ? view_of(inputs[i], shapes[i].data(), strides[i].data()) : gw_view{};
  }

  const Use& thread_use() const { return use; }
  const Use use = new_use();
  const GangPtr gang;
  ManualPipeline pipeline;
  Values inputs;  // of the last action; the arrays below hold their views
  std::array<gw_view, MessageHeader::kMostTensors> views{};
  std::array<std::array<int64_t, kMaxDims>, MessageHeader::kMostTensors> shapes{}, strides{};
};

namespace {

gw_action_kind kind_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return GW_ACTION_FORWARD;
    case ActionKind::backward: return GW_ACTION_BACKWARD;
    case ActionKind::input_gradient: return GW_ACTION_INPUT_GRADIENT;
    case ActionKind::weight_gradient: return GW_ACTION_WEIGHT_GRADIENT;
    case ActionKind::unshard: return GW_ACTION_UNSHARD;
    case ActionKind::reshard: return GW_ACTION_RESHARD;
    case ActionKind::reduce_grad: return GW_ACTION_REDUCE_GRAD;
    case ActionKind::send_forward:
    case ActionKind::recv_forward:
    case ActionKind::send_backward:
    case ActionKind::recv_backward: break;  // the library runs these itself
  }
  fail(Code::internal, "action ", text_of(kind), " is not the caller's");
}

}  // namespace

PipelineOptions gangway::capi::pipeline_options_of(const gw_pipeline_options& o, const std::string& name) {
  PipelineOptions p;
  p.schedule = text_or(o.schedule, "1f1b");
  if (o.schedule_csv != nullptr) {
    if (o.schedule != nullptr)
      fail(Code::invalid_argument, name, ".schedule is \"", o.schedule, "\", and ", name,
           ".schedule_csv is given, too");
    if (o.microbatches != 0)
      fail(Code::invalid_argument, name, ".microbatches is ", o.microbatches, ", but ", name,
           ".schedule_csv says it");
    p.own_schedule = std::make_shared<const Schedule>(schedule_from_csv(o.schedule_csv));
  }
  p.microbatches = o.microbatches;
  p.stages_per_rank = o.stages_per_rank;
  if (o.shard_actions != 0) p.most_unsharded = o.shard_actions;
  return p;
}

namespace {

ManualPipelineOptions manual_pipeline_options(const gw_pipeline_options& o) {
  return {.pipeline = pipeline_options_of(o, "options"), .shard_actions = o.shard_actions};
}

const Schedule& schedule_of(const gw_pipeline* pipeline) {
  return required(pipeline, "pipeline").pipeline.schedule();
}

}  // namespace

void gw_pipeline_options_init(gw_pipeline_options* options, size_t size) { start_struct(options, size); }

gw_status gw_pipeline_create(gw_gang* gang, const gw_pipeline_options* options, gw_pipeline** out_pipeline) {
  return guarded([&] {
    if (out_pipeline != nullptr) *out_pipeline = nullptr;
    const GangPtr& members = required(gang, "gang").gang;
    ManualPipelineOptions read;
    agreed(*members, [&] {
      out(out_pipeline, "out_pipeline");
      read = manual_pipeline_options(read_struct(options, gw_pipeline_options_init, "options"));
    });
    *out_pipeline = new gw_pipeline(members, read);
  });
}

gw_pipeline* gw_pipeline_retain(gw_pipeline* pipeline) { return retain(pipeline); }
void gw_pipeline_release(gw_pipeline* pipeline) { release(pipeline); }

void gw_pipeline_info_init(gw_pipeline_info* info, size_t size) { start_struct(info, size); }

gw_status gw_pipeline_describe(const gw_pipeline* pipeline, gw_pipeline_info* info) {
  return guarded([&] {
    check_out_struct(info, "info");
    const Schedule& schedule = schedule_of(pipeline);
    gw_pipeline_info filled{};
    filled.stages = schedule.stages();
    filled.microbatches = schedule.microbatches;
    filled.local_stages = static_cast<int32_t>(
        std::count(schedule.stage_rank.begin(), schedule.stage_rank.end(), pipeline->pipeline.rank()));
    filled.rank = pipeline->pipeline.rank();
    write_struct(info, filled);
  });
}

gw_status gw_pipeline_stage_rank(const gw_pipeline* pipeline, int32_t stage, int32_t* out_rank) {
  return guarded([&] {
    int32_t& rank = out(out_rank, "out_rank");
    const Schedule& schedule = schedule_of(pipeline);
    if (stage < 0 || stage >= schedule.stages())
      fail(Code::invalid_argument, "stage is ", stage, ", outside [0, ", schedule.stages(), ")");
    rank = schedule.stage_rank[static_cast<size_t>(stage)];
  });
}

gw_status gw_pipeline_set_training(gw_pipeline* pipeline, int32_t training) {
  return guarded([&] { required(pipeline, "pipeline").pipeline.set_training(training != 0); });
}

void gw_pipeline_action_init(gw_pipeline_action* action, size_t size) {
  gw_pipeline_action d{};
  d.microbatch = -1;
  init_struct(action, size, d);
}

gw_status gw_pipeline_next(gw_pipeline* pipeline, void* stream, gw_pipeline_action* action) {
  return guarded([&] {
    check_out_struct(action, "action");
    gw_pipeline& p = required(pipeline, "pipeline");
    Stream& ordered_on = EntryStream::of(p.pipeline.device(), stream);
    PassAction next;
    gw_pipeline_action filled;
    gw_pipeline_action_init(&filled, sizeof filled);
    if (!p.pipeline.waits_for_done()) p.show({});  // drops the old inputs, so that their memory can be reused
    if (p.pipeline.next(next, ordered_on)) {
      p.show(next.inputs);
      filled.kind = kind_of(next.kind);
      filled.stage = next.stage;
      filled.microbatch = next.microbatch;
      filled.first_stage = p.pipeline.is_first(next.stage) ? 1 : 0;
      filled.last_stage = p.pipeline.is_last(next.stage) ? 1 : 0;
      filled.training = p.pipeline.training() ? 1 : 0;
      filled.inputs = p.inputs.empty() ? nullptr : p.views.data();
      filled.input_count = p.inputs.size();
    }
    write_struct(action, filled);
  });
}

gw_status gw_pipeline_input(gw_pipeline* pipeline, size_t index, gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    gw_pipeline& p = required(pipeline, "pipeline");
    if (index >= p.inputs.size())
      fail(Code::invalid_argument, "index is ", index, ", the action has ", p.inputs.size(), " inputs");
    const Tensor& input = p.inputs[index];
    if (!input) return;
    result = new gw_tensor(input, p.gang);
    p.pipeline.lend(input);
  });
}

gw_status gw_pipeline_done(gw_pipeline* pipeline, const gw_view* outputs, size_t output_count, void* stream) {
  return guarded([&] {
    gw_pipeline& p = required(pipeline, "pipeline");
    if (output_count != 0) required(outputs, "outputs");
    Stream& ordered_on = EntryStream::of(p.pipeline.device(), stream);
    Values results;
    for (size_t i = 0; i < output_count; ++i) {
      const bool absent = outputs[i].data == nullptr && outputs[i].shape == nullptr;
      results.push_back(absent ? Tensor() : input_of(outputs[i], ordered_on, text("outputs[", i, "]")));
    }
    p.pipeline.done(results, ordered_on);
  });
}
