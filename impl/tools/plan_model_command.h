// The command `gw-plan model`: a table of the memory of each rank by mesh.
#pragma once

#include <string>

#include "plan/model_plan.h"
#include "tools/arguments.h"

namespace gangway {

struct ModelCommand {
  std::string file, memory, param_dtype = "bf16", moments = "f32", strategy = "full_shard",
                            recompute = "none";
  int gpus = 0, ranks = 0, lines = 20;
  ModelPlanRequest plan;
};

// The options of the command, which are read into `command`.
tools::CommandLine model_line(ModelCommand& command);
// Prints the table. Throws if the request is wrong.
void run_model(ModelCommand& command);

}  // namespace gangway
