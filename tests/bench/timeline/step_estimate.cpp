// Milliseconds by phase of a step of the 8B preset on one H200, 4096 tokens a microbatch: estimated from what
// nvcc made of the module's kernels (tests/timeline/kernel_rates.h).
//   step_estimate [--layers 32] [--json FILE]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/table.h"
#include "support/placed.h"
#include "timeline/kernel_rates.h"
#include "timeline/phases.h"
#include "timeline/plan.h"

namespace {

using namespace gangway;
using namespace gangway::bench;
using namespace gangway::timeline;
using Json = nlohmann::json;

Plan plan_of(int microbatches, int layers) {
  Plan plan = plan_8b();
  plan.ranks = 1;
  plan.model.layers = layers;
  plan.moments = DType::bf16;  // those of f32 leave no room on one GPU
  plan.microbatches = microbatches;
  plan.sequences = microbatches;
  return plan;
}

// The share of the peak that the step needs: 6 flops for each weight but the embedding's, and attention's
// causal half.
double mfu(const Plan& plan, double seconds) {
  const auto& m = plan.model;
  const double dim = static_cast<double>(m.dim), layers = static_cast<double>(m.layers);
  const double width = dim / static_cast<double>(m.heads), tokens = static_cast<double>(plan.tokens);
  const double weights = layers * (2 * dim * dim + 2 * dim * width * static_cast<double>(m.kv_heads) +
                                   3 * dim * static_cast<double>(m.ffn)) +
                         dim * static_cast<double>(m.vocab);
  const double flops =
      static_cast<double>(plan.sequences) * tokens * (6 * weights + 6 * layers * dim * tokens);
  return flops / seconds / Rates().peak;
}

}  // namespace

int main(int count, char** arguments) {
  int layers = 32;
  std::string json;
  CLI::App app("A step of 8B on one H200 by phase, estimated from the kernels' instructions.",
               "step_estimate");
  app.add_option("--layers", layers)->check(CLI::Range(1, 256));
  app.add_option("--json", json);
  CLI11_PARSE(app, count, arguments);
  try {
    Rates low, middle, high;
    low.product_share = 0.65, high.product_share = 0.80;
    low.memory = 3.6e12, high.memory = 4.4e12;
    low.kernels = kernel_rates(placed("@source@/tests/bench/cuda_static.json"), low, Overlap::none);
    middle.kernels = kernel_rates(placed("@source@/tests/bench/cuda_static.json"), middle);
    high.kernels = kernel_rates(placed("@source@/tests/bench/cuda_static.json"), high, Overlap::all);
    std::vector<std::pair<std::string, std::vector<double>>> rows;
    std::vector<double> lengths, shares;
    Json all;
    for (const int microbatches : {1, 8}) {
      const Plan plan = plan_of(microbatches, layers);
      const StepLog log = run_step(plan);
      for (const Rates* const rates : {&low, &middle, &high}) {
        const StepTimes times = simulate(log.ranks, *rates);
        const auto parts = phases(log.ranks[0], times.ranks[0], static_cast<uint64_t>(plan.model.vocab));
        rows.resize(parts.size());
        for (size_t i = 0; i < parts.size(); ++i) {
          rows[i].first = parts[i].name;
          rows[i].second.push_back(parts[i].seconds);
        }
        lengths.push_back(times.length);
        shares.push_back(mfu(plan, times.length));
      }
      all["microbatches"].push_back(microbatches);
    }
    std::printf(
        "ms of a step with 1 and 8 microbatches. low: products at %.2f of the peak, memory at %.1f TB/s, no "
        "overlap within a warp;\nhigh: %.2f, %.1f TB/s, all of it; the estimate: %.2f, %.1f TB/s, overlap by "
        "the number of warps\n",
        low.product_share, low.memory * 1e-12, high.product_share, high.memory * 1e-12, middle.product_share,
        middle.memory * 1e-12);
    Table table({"phase", "1: low", "1: estimate", "1: high", "8: low", "8: estimate", "8: high"});
    const auto row = [&](const std::string& name, const std::vector<double>& values, double factor) {
      std::vector<std::string> cells = {name};
      for (const double value : values) cells.push_back(fixed(value * factor, 1));
      table.row(cells);
      all["rows"][name] = values;
    };
    for (const auto& [name, values] : rows) row(name, values, 1e3);
    row("step", lengths, 1e3);
    row("MFU, %", shares, 100);
    table.print();
    std::printf(
        "share of the peak: attention %.2f, attention_dq %.2f, attention_dkv %.2f; products %.2f is "
        "assumed\n",
        middle.kernels.at("attention").flops / middle.peak,
        middle.kernels.at("attention_dq").flops / middle.peak,
        middle.kernels.at("attention_dkv").flops / middle.peak, middle.product_share);
    if (!json.empty()) std::ofstream(json) << all.dump(1) << "\n";
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_estimate: %s\n", error.what());
    return 1;
  }
  return 0;
}
