#include <gangway/parallel.h>

#include "checkpoint/config_json.h"
#include "checkpoint/safetensors.h"
#include "parallel_options.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Strategy::no_shard) == GW_NO_SHARD);
static_assert(static_cast<int>(RecomputeKind::ratio) == GW_RECOMPUTE_RATIO);
static_assert(static_cast<int>(ContextMethod::all_to_all) == GW_CONTEXT_ALL_TO_ALL);
static_assert(static_cast<int>(StageSplit::given) == GW_STAGE_SPLIT_GIVEN);

namespace gangway::capi {
namespace {

// What gw_shard_options and gw_parallel_options have in common.
template <typename Options>
ShardOptions shard_part_of(const Options& o) {
  ShardOptions s;
  s.strategy = strategy_of(o.strategy);
  s.reshard_after_forward = o.reshard_after_forward;
  s.param_dtype = optional_dtype(o.param_dtype);
  s.reduce_dtype = optional_dtype(o.reduce_dtype);
  s.output_dtype = optional_dtype(o.output_dtype);
  s.cast_forward_inputs = o.cast_forward_inputs != 0;
  s.cpu_offload = o.cpu_offload != 0;
  s.prefetch_forward = o.prefetch_forward;
  s.prefetch_backward = o.prefetch_backward;
  s.accumulate_unsharded = o.accumulate_unsharded;
  s.bucket_cap_mb = o.bucket_cap_mb;
  s.dtype_rules = dtype_rules_of(o.rules, o.rule_count);
  return s;
}

}  // namespace

std::vector<DtypeRule> dtype_rules_of(const gw_dtype_rule* rules, size_t count) {
  if (count > 0) required(rules, "options.rules");
  std::vector<DtypeRule> all;
  for (size_t i = 0; i < count; ++i) {
    const gw_dtype_rule r = read_element(rules, i, gw_dtype_rule_init, "options.rules");
    all.push_back({&required(r.pattern, "options.rules[i].pattern"), dtype_of(r.dtype)});
  }
  return all;
}

Strategy strategy_of(gw_strategy strategy) {
  if (strategy < GW_FULL_SHARD || strategy > GW_NO_SHARD)
    fail(Code::invalid_argument, "options.strategy is ", strategy, ", not 0 to ", GW_NO_SHARD);
  return static_cast<Strategy>(strategy);
}

ShardOptions shard_options_of(const gw_shard_options* options) {
  return shard_part_of(read_struct(options, gw_shard_options_init, "options"));
}

}  // namespace gangway::capi

namespace {

RecomputeOptions recompute_of(gw_recompute_kind kind, int32_t every, double ratio) {
  if (kind < GW_RECOMPUTE_NONE || kind > GW_RECOMPUTE_RATIO)
    fail(Code::invalid_argument, "the recompute kind is ", kind, ", not 0 to ", GW_RECOMPUTE_RATIO);
  if (kind == GW_RECOMPUTE_EVERY && every < 1)
    fail(Code::invalid_argument, "recompute every ", every, " blocks");
  finite(ratio, "the recompute ratio");
  if (kind == GW_RECOMPUTE_RATIO && !(ratio >= 0 && ratio <= 1))
    fail(Code::invalid_argument, "the recompute ratio is ", ratio, ", not 0 to 1");
  return {static_cast<RecomputeKind>(kind), every, ratio};
}

void check_wrappable(gw_module* model, const char* call) {
  const gw_module& m = required(model, "model");
  if (m.model && m.model->materialized())
    fail(Code::invalid_state, call, " comes before gw_parallelize and gw_module_materialize");
}

// What gw_recompute asked for.
void recompute_first(gw_module& model) {
  if (model.recompute.kind == RecomputeKind::none) return;
  model.model->build().recompute(model.recompute);
  model.recompute = {};
}

void read_pipeline(const gw_parallel_options& o, PipelineOptions& p) {
  if (o.stage_split < GW_STAGE_SPLIT_EVEN || o.stage_split > GW_STAGE_SPLIT_GIVEN)
    fail(Code::invalid_argument, "options.stage_split is ", o.stage_split, ", not 0 to ",
         GW_STAGE_SPLIT_GIVEN);
  p = pipeline_options_of(read_struct(o.pipeline, gw_pipeline_options_init, "options.pipeline"));
  p.split = static_cast<StageSplit>(o.stage_split);
  if (o.first_layer_count != 0) required(o.first_layers, "options.first_layers");
  p.first_layers.assign(o.first_layers, o.first_layers + o.first_layer_count);
}

ParallelOptions parallel_options_of(const gw_parallel_options* options) {
  const gw_parallel_options o = read_struct(options, gw_parallel_options_init, "options");
  ParallelOptions p;
  p.shard = shard_part_of(o);
  p.recompute = recompute_of(o.recompute, o.recompute_every, o.recompute_ratio);
  p.seed = o.seed;
  p.master_dtype = o.master_dtype == GW_DTYPE_NONE ? DType::f32 : dtype_of(o.master_dtype);
  if (o.plan != nullptr) p.tensor.rows = plan_from_text(o.plan);
  p.tensor.llama = {.sequence_parallel = o.sequence_parallel != 0, .loss_parallel = o.loss_parallel != 0};
  if (o.context_method < GW_CONTEXT_RING || o.context_method > GW_CONTEXT_ALL_TO_ALL)
    fail(Code::invalid_argument, "options.context_method is ", o.context_method, ", not 0 to ",
         GW_CONTEXT_ALL_TO_ALL);
  p.context = static_cast<ContextMethod>(o.context_method);
  read_pipeline(o, p.pipeline);
  return p;
}

}  // namespace

void gw_dtype_rule_init(gw_dtype_rule* rule, size_t size) { start_struct(rule, size); }

void gw_shard_options_init(gw_shard_options* options, size_t size) {
  gw_shard_options d{};
  d.reshard_after_forward = d.accumulate_unsharded = -1;
  d.cast_forward_inputs = d.prefetch_forward = d.prefetch_backward = 1;
  d.bucket_cap_mb = 25;
  init_struct(options, size, d);
}

void gw_parallel_options_init(gw_parallel_options* options, size_t size) {
  gw_parallel_options d{};
  d.reshard_after_forward = d.accumulate_unsharded = -1;
  d.cast_forward_inputs = d.prefetch_forward = d.prefetch_backward = 1;
  d.recompute_every = 2;
  d.recompute_ratio = 1;
  d.bucket_cap_mb = 25;
  d.loss_parallel = 1;
  init_struct(options, size, d);
}

gw_status gw_parallelize(gw_module* model, gw_gangs* gangs, const gw_parallel_options* options) {
  return guarded([&] {
    ParallelOptions p;
    set_up(
        model, gangs,
        [&] {
          p = parallel_options_of(options);
          check_wrappable(model, "gw_parallelize");
          if (p.recompute.kind == RecomputeKind::none) p.recompute = model->recompute;
        },
        [&](Model& bound) { bound.build().parallelize(p); });
  });
}

gw_status gw_llama_from_folder(gw_gangs* gangs, const char* folder, const gw_parallel_options* options,
                               gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    ParallelOptions p;
    std::string path;
    auto made = std::make_unique<gw_module>(ModulePtr());
    set_up(
        made.get(), gangs,
        [&] {
          p = parallel_options_of(options);
          path = &required(folder, "folder");
          made->module = make_llama(llama_config_of_folder(path));
          check_loads(*made->module, path);
        },
        [&](Model& bound) { bound.build().parallelize(p); });
    load_model(*made->model, path);
    result = made.release();
  });
}

gw_status gw_fully_shard(gw_module* model, const char* pattern, gw_gangs* gangs,
                         const gw_shard_options* options) {
  return guarded([&] {
    ShardOptions s;
    std::string p;
    set_up(
        model, gangs,
        [&] {
          s = shard_options_of(options);
          p = &required(pattern, "pattern");
          check_wrappable(model, "gw_fully_shard");
        },
        [&](Model& bound) {
          recompute_first(*model);
          bound.build().fully_shard(p, s);
        });
  });
}

gw_status gw_replicate(gw_module* model, gw_gangs* gangs, const gw_shard_options* options) {
  return guarded([&] {
    ShardOptions s;
    set_up(
        model, gangs,
        [&] {
          s = shard_options_of(options);
          s.strategy = Strategy::no_shard;
          check_wrappable(model, "gw_replicate");
        },
        [&](Model& bound) {
          recompute_first(*model);
          bound.build().replicate(s);
        });
  });
}

gw_status gw_recompute(gw_module* model, gw_recompute_kind kind, int32_t every, double ratio) {
  return guarded([&] {
    gw_module& m = required(model, "model");
    const RecomputeOptions r = recompute_of(kind, every, ratio);
    if (m.model)
      fail(Code::invalid_state, "gw_recompute comes before gw_fully_shard and gw_module_materialize");
    m.recompute = r;
  });
}
