// Reads the option structs of parallel.h, for modules and for shard groups.
//
// Thread rule: functions without state; any thread.
#pragma once

#include <gangway/parallel.h>

#include "module_handle.h"
#include "parallel/options.h"

namespace gangway::capi {

// `name`: the name of the struct in error messages.
ShardOptions shard_options_of(const gw_shard_options* options, const std::string& name = "options");
TensorOptions tensor_options_of(const gw_tensor_parallel_options* options,
                                const std::string& name = "options");
ContextMethod context_method_of(gw_context_method method, const char* name);
RecomputeOptions recompute_options_of(gw_recompute_kind kind, int32_t every, double ratio);
PipelineOptions pipeline_options_of(const gw_pipeline_options& options, const std::string& name);
ParallelOptions parallel_options_of(const gw_parallel_options* options);

}  // namespace gangway::capi
