// Reading the options of parallel.h, for modules and for shard groups.
#pragma once

#include <gangway/pipeline.h>

#include "module_handle.h"
#include "parallel/options.h"

namespace gangway::capi {

ShardOptions shard_options_of(const gw_shard_options* options);
Strategy strategy_of(gw_strategy strategy);
PipelineOptions pipeline_options_of(const gw_pipeline_options& options);
std::vector<DtypeRule> dtype_rules_of(const gw_dtype_rule* rules, size_t count);

}  // namespace gangway::capi
