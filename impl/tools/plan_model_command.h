// The command `gw-plan model`: a table of the memory of each rank by mesh.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "plan/model_plan.h"

namespace gangway {

struct ModelCommand {
  std::string file, memory, param_dtype = "bf16", moments = "f32", strategy = "full_shard",
                            recompute = "none";
  int gpus = 0, ranks = 0, lines = 20;
  ModelPlanRequest plan;
};

// Adds the subcommand, which reads its options into `command`. `command` must outlive the app.
CLI::App* add_model_command(CLI::App& app, ModelCommand& command);
// Prints the table. Throws if the request is wrong.
void run_model(ModelCommand& command);

}  // namespace gangway
