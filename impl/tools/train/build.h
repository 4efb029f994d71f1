// Makes the objects of a run out of its settings: the mesh, the model on it, its optimizer.
#pragma once

#include <string>
#include <vector>

#include "tools/train/handles.h"
#include "tools/train/settings.h"

namespace gangway::train {

GangsHandle make_gangs(const Settings& settings);

gw_mesh_options mesh_of(const Settings& settings);
gw_decoder_options decoder_of(const Settings& settings);  // of model.folder

// With fresh values. Values of files are read later, since a run that is continued has them in its
// checkpoint.
ModelHandle make_model(const Settings& settings, gw_gangs* gangs, const gw_decoder_options& decoder);

// Whether the run trains adapters alone.
bool has_adapters(const Settings& settings);
// The options of the adapters, which point into the settings.
gw_lora_options lora_of(const Settings& settings);

// Whether model.folder has values that the settings ask for.
bool has_values(const Settings& settings);

// Whether layers compute in FP8, and its options, which point into the settings.
bool has_fp8(const Settings& settings);
gw_fp8_options fp8_of(const Settings& settings);

// The options of [optimizer], as gw_optimizer_create takes them. They point into the settings.
struct OptimizerSettings {
  explicit OptimizerSettings(const Settings& settings);
  OptimizerSettings(const OptimizerSettings&) = delete;
  OptimizerSettings& operator=(const OptimizerSettings&) = delete;
  std::vector<const char*> names, values;

 private:
  std::string steps_;
};
OptimizerHandle make_optimizer(const Settings& settings, gw_module* model);

// Microbatches of a step, equal on all ranks: as many as give at most train.microbatch rows.
int microbatches_of(const Settings& settings, int data_ranks);

// The options of gw_parallelize, and what they point at.
struct Parallel {
  explicit Parallel(const Settings& settings);
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;
  gw_parallel_options options;

 private:
  gw_shard_options shard_;
  gw_tensor_parallel_options tensor_;
  gw_pipeline_options pipeline_;
  std::string schedule_;
};

}  // namespace gangway::train
