// gw-plan model: memory per rank by mesh, as a table.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/model_plan.h"

namespace gangway {

struct ModelCommand {
  std::string file, memory, param_dtype = "bf16", moments = "f32", strategy = "full_shard",
                            recompute = "none";
  int gpus = 0, ranks = 0, lines = 20;
  ModelPlanRequest plan;
};

// Adds the subcommand; its options are read into `command`, which outlives the app.
CLI::App* add_model_command(CLI::App& app, ModelCommand& command);
// Prints the table. Throws what is wrong with the request.
void run_model(ModelCommand& command);

}  // namespace gangway
