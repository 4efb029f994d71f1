// Training on GPUs: ours beside PyTorch, compiled and with its fused attention, in tokens/s and in the share of the GPU's
// peak. README.md says what each column is.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gangway::bench {

struct GpuSettings {
  std::vector<std::string> presets = {"0.5B", "1.5B"};
  int ranks = 1;
  int steps = 10;              // a round
  double peak_tflops = 989.4;  // bf16, dense, of an H100 or H200
};

std::vector<std::string> preset_names();

// Prints a table for each preset, and then calls `done` with all numbers so far. `folder`: where the ranks of
// PyTorch meet.
void train_on_gpus(const GpuSettings& settings, int rounds, const std::string& folder,
                   const std::function<void(nlohmann::json&)>& done);

}  // namespace gangway::bench
