#include "parallel/options.h"

#include <cmath>

#include "base/error.h"
#include "parallel/pipeline/schedule.h"

namespace gangway {
namespace {

constexpr DType kNone = DType{};

void check_dtype(const char* field, DType dtype) {
  if (dtype == kNone || is_floating(dtype)) return;
  fail(Code::invalid_argument, field, " is ", name(dtype), "; it must be f64, f32, bf16 or f16");
}

void check_switch(const char* field, int value) {
  if (value < -1 || value > 1)
    fail(Code::invalid_argument, field, " is ", value, "; it must be 0, 1 or -1 (the strategy's)");
}

// Computing in f64 would gain nothing, because the values that are updated and saved are f32.
void check_wider(const char* field, DType dtype, DType master) {
  if (dtype == DType::f64 && master == DType::f32)
    fail(Code::invalid_argument, field, " is f64, but the master values are f32");
}

}  // namespace

void check(const ShardOptions& o, DType master) {
  const auto strategy = static_cast<int32_t>(o.strategy);
  if (strategy < 0 || strategy > 2)
    fail(Code::invalid_argument, "strategy ", strategy, " is unknown (0 to 2)");
  if (o.cpu_offload && o.strategy == Strategy::no_shard)
    fail(Code::invalid_argument,
         "cpu_offload is 1, but NO_SHARD computes with the values that are stepped; take FULL_SHARD or "
         "SHARD_GRAD_OP");
  if (o.reshard_after_forward < -1)
    fail(Code::invalid_argument, "reshard_after_forward is ", o.reshard_after_forward,
         "; it must be 0, 1, a number of ranks or -1 (the strategy's)");
  check_switch("accumulate_unsharded", o.accumulate_unsharded);
  if (o.strategy == Strategy::no_shard && o.accumulate_unsharded == 0)
    fail(Code::invalid_argument, "accumulate_unsharded is 0, but NO_SHARD has whole gradients only");
  check_dtype("param_dtype", o.param_dtype);
  check_dtype("reduce_dtype", o.reduce_dtype);
  check_dtype("output_dtype", o.output_dtype);
  check_wider("param_dtype", o.param_dtype, master);
  for (const DtypeRule& rule : o.dtype_rules) {
    const std::string field = "rule \"" + rule.pattern + "\"";
    if (rule.dtype == kNone) fail(Code::invalid_argument, field, " names no dtype");
    check_dtype(field.c_str(), rule.dtype);
    check_wider(field.c_str(), rule.dtype, master);
  }
  if (o.prefetch_forward < 0 || o.prefetch_backward < 0)
    fail(Code::invalid_argument, "prefetch_forward is ", o.prefetch_forward, ", prefetch_backward is ",
         o.prefetch_backward, "; both are 0 or more");
  if (!(std::isfinite(o.bucket_cap_mb) && o.bucket_cap_mb > 0))
    fail(Code::invalid_argument, "bucket_cap_mb is ", o.bucket_cap_mb, ", not a finite number above 0");
}

void check_reshard(const ShardOptions& o, int shard_ranks) {
  const int k = o.reshard_after_forward;
  if (k <= 1) return;
  if (o.strategy == Strategy::no_shard)
    fail(Code::invalid_argument, "reshard_after_forward is ", k,
         ", but NO_SHARD has whole values on every rank");
  if (shard_ranks % k != 0)
    fail(Code::invalid_argument, "reshard_after_forward is ", k, ", which is no factor of the ", shard_ranks,
         " ranks of dp_shard x cp");
}

void check(const RecomputeOptions& o) {
  const auto kind = static_cast<int32_t>(o.kind);
  if (kind < 0 || kind > 4) fail(Code::invalid_argument, "recompute ", kind, " is unknown (0 to 4)");
  if (o.kind == RecomputeKind::every && o.every < 1)
    fail(Code::invalid_argument, "recompute every is ", o.every, ", below 1");
  if (!std::isfinite(o.ratio) || (o.kind == RecomputeKind::ratio && !(o.ratio >= 0 && o.ratio <= 1)))
    fail(Code::invalid_argument, "recompute ratio is ", o.ratio, ", outside [0, 1]");
}

void check(const PipelineOptions& o) {
  const auto split = static_cast<int32_t>(o.split);
  if (split < 0 || split > 2) fail(Code::invalid_argument, "stage split ", split, " is unknown (0 to 2)");
  if (o.stages_per_rank < 0 || o.microbatches < 0)
    fail(Code::invalid_argument, "pipeline: stages_per_rank is ", o.stages_per_rank, ", microbatches is ",
         o.microbatches, "; both are 0 or more");
  if (o.most_unsharded < 1)
    fail(Code::invalid_argument, "pipeline: most_unsharded is ", o.most_unsharded, ", below 1");
  if (o.split != StageSplit::given && !o.first_layers.empty())
    fail(Code::invalid_argument, "pipeline: first_layers has ", o.first_layers.size(),
         " entries, but the stage split is not \"given\"");
}

void check_master(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    fail(Code::invalid_argument, "master_dtype is ", name(dtype), "; it must be f32 or f64");
}

void add_to_signature(const ShardOptions& o, CallSignature& signature) {
  const auto add_dtype = [&](const char* field, DType dtype) {
    signature.add(field, dtype == kNone ? "none" : name(dtype));
  };
  signature.add("strategy", o.strategy);
  signature.add("reshard_after_forward", o.reshard_after_forward);
  add_dtype("param_dtype", o.param_dtype);
  add_dtype("reduce_dtype", o.reduce_dtype);
  add_dtype("output_dtype", o.output_dtype);
  signature.add("cast_forward_inputs", o.cast_forward_inputs);
  for (const DtypeRule& rule : o.dtype_rules)
    add_dtype(("rule \"" + rule.pattern + "\"").c_str(), rule.dtype);
  signature.add("prefetch_forward", o.prefetch_forward);
  signature.add("prefetch_backward", o.prefetch_backward);
  signature.add("accumulate_unsharded", o.accumulate_unsharded);
  signature.add("bucket_cap_mb", o.bucket_cap_mb);
}

void add_to_signature(const PipelineOptions& o, CallSignature& signature) {
  signature.add("schedule", o.own_schedule == nullptr ? o.schedule : to_csv(*o.own_schedule));
  signature.add("stages_per_rank", o.stages_per_rank);
  signature.add("pipeline microbatches", o.microbatches);
  signature.add("stage split", o.split);
  for (const int64_t layer : o.first_layers) signature.add("first layer of a stage", layer);
  signature.add("most_unsharded", o.most_unsharded);
}

}  // namespace gangway
