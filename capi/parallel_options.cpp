#include "parallel_options.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Strategy::no_shard) == GW_NO_SHARD);
static_assert(static_cast<int>(RecomputeKind::ratio) == GW_RECOMPUTE_RATIO);
static_assert(static_cast<int>(TensorStyle::headwise) == GW_STYLE_HEADWISE);
static_assert(static_cast<int>(ContextMethod::all_to_all) == GW_CONTEXT_ALL_TO_ALL);
static_assert(static_cast<int>(StageSplit::given) == GW_STAGE_SPLIT_GIVEN);

namespace {

std::vector<DtypeRule> dtype_rules_of(const gw_dtype_rule* rules, size_t count, const std::string& name) {
  if (count > 0) required(rules, name.c_str());
  std::vector<DtypeRule> all;
  for (size_t i = 0; i < count; ++i) {
    const gw_dtype_rule r = read_element(rules, i, gw_dtype_rule_init, name.c_str());
    all.push_back({&required(r.pattern, text(name, "[", i, "].pattern").c_str()), dtype_of(r.dtype)});
  }
  return all;
}

std::optional<ValueLayout> layout_of(gw_placement placement, int32_t dim, const char* field) {
  const auto known = enum_of<gw_placement>(placement, GW_PLACEMENT_SHARD, field);
  if (known != GW_PLACEMENT_SHARD && dim != 0)
    fail(Code::invalid_argument, field, "_dim is ", dim, ", but ", field, " is no GW_PLACEMENT_SHARD");
  switch (known) {
    case GW_PLACEMENT_REPLICATE: return ValueLayout::replicate();
    case GW_PLACEMENT_VARYING: return ValueLayout::varying();
    case GW_PLACEMENT_PARTIAL: return ValueLayout::partial();
    case GW_PLACEMENT_SHARD: return ValueLayout::shard(dim);
    default: return std::nullopt;
  }
}

PlanRow plan_row_of(const gw_plan_row* rows, size_t i, const std::string& name) {
  const gw_plan_row r = read_element(rows, i, gw_plan_row_init, name.c_str());
  const std::string row = text(name, "[", i, "]");
  const char* const pattern = &required(r.pattern, (row + ".pattern").c_str());
  try {
    return make_plan_row(pattern, enum_of<TensorStyle>(r.style, GW_STYLE_HEADWISE, "style"),
                         layout_of(r.input, r.input_dim, "input"),
                         layout_of(r.output, r.output_dim, "output"));
  } catch (const Error& error) {
    fail(error.code(), row, " for \"", pattern, "\": ", error.message());
  }
}

}  // namespace

namespace gangway::capi {

ShardOptions shard_options_of(const gw_shard_options* options, const std::string& name) {
  const gw_shard_options o = read_struct(options, gw_shard_options_init, name.c_str());
  ShardOptions s;
  s.strategy = enum_of<Strategy>(o.strategy, GW_NO_SHARD, name + ".strategy");
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
  s.dtype_rules = dtype_rules_of(o.rules, o.rule_count, name + ".rules");
  return s;
}

TensorOptions tensor_options_of(const gw_tensor_parallel_options* options, const std::string& name) {
  const gw_tensor_parallel_options o = read_struct(options, gw_tensor_parallel_options_init, name.c_str());
  TensorOptions t;
  if (o.plan != nullptr) t.rows = plan_from_text(o.plan);
  const std::string rows = name + ".rows";
  if (o.row_count > 0) required(o.rows, rows.c_str());
  for (size_t i = 0; i < o.row_count; ++i) t.rows.push_back(plan_row_of(o.rows, i, rows));
  t.family = {.sequence_parallel = o.sequence_parallel != 0, .loss_parallel = o.loss_parallel != 0};
  t.overlap_chunks = o.overlap_chunks;
  return t;
}

ContextMethod context_method_of(gw_context_method method, const char* name) {
  return enum_of<ContextMethod>(method, GW_CONTEXT_ALL_TO_ALL, name);
}

RecomputeOptions recompute_options_of(gw_recompute_kind kind, int32_t every, double ratio) {
  RecomputeOptions r{enum_of<RecomputeKind>(kind, GW_RECOMPUTE_RATIO, "the recompute kind"), every, ratio};
  if (kind == GW_RECOMPUTE_EVERY && every < 1)
    fail(Code::invalid_argument, "recompute every ", every, " blocks");
  finite(ratio, "the recompute ratio");
  if (kind == GW_RECOMPUTE_RATIO && !(ratio >= 0 && ratio <= 1))
    fail(Code::invalid_argument, "the recompute ratio is ", ratio, ", not 0 to 1");
  return r;
}

ParallelOptions parallel_options_of(const gw_parallel_options* options) {
  const gw_parallel_options o = read_struct(options, gw_parallel_options_init, "options");
  ParallelOptions p;
  p.shard = shard_options_of(o.shard, "options.shard");
  p.master_dtype = o.master_dtype == GW_DTYPE_NONE ? DType::f32 : dtype_of(o.master_dtype);
  p.recompute = recompute_options_of(o.recompute, o.recompute_every, o.recompute_ratio);
  p.activation_offload = o.activation_offload != 0;
  p.seed = o.seed;
  p.tensor = tensor_options_of(o.tensor_parallel, "options.tensor_parallel");
  p.context = context_method_of(o.context_method, "options.context_method");
  p.pipeline = pipeline_options_of(read_struct(o.pipeline, gw_pipeline_options_init, "options.pipeline"),
                                   "options.pipeline");
  p.pipeline.split = enum_of<StageSplit>(o.stage_split, GW_STAGE_SPLIT_GIVEN, "options.stage_split");
  if (o.first_layer_count != 0) required(o.first_layers, "options.first_layers");
  p.pipeline.first_layers.assign(o.first_layers, o.first_layers + o.first_layer_count);
  return p;
}

}  // namespace gangway::capi

void gw_dtype_rule_init(gw_dtype_rule* rule, size_t size) { start_struct(rule, size); }

void gw_plan_row_init(gw_plan_row* row, size_t size) { start_struct(row, size); }

void gw_shard_options_init(gw_shard_options* options, size_t size) {
  gw_shard_options d{};
  d.reshard_after_forward = d.accumulate_unsharded = -1;
  d.cast_forward_inputs = d.prefetch_forward = d.prefetch_backward = 1;
  d.bucket_cap_mb = 25;
  init_struct(options, size, d);
}

void gw_tensor_parallel_options_init(gw_tensor_parallel_options* options, size_t size) {
  gw_tensor_parallel_options d{};
  d.loss_parallel = 1;
  d.overlap_chunks = 1;
  init_struct(options, size, d);
}

void gw_parallel_options_init(gw_parallel_options* options, size_t size) {
  gw_parallel_options d{};
  d.recompute_every = 2;
  d.recompute_ratio = 1;
  init_struct(options, size, d);
}
