#include "train/gpu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <span>

#include "common/report.h"
#include "common/table.h"
#include "train/trainer.h"

namespace gangway::bench {
namespace {

constexpr double kGpuPatience = 570;  // PyTorch compiles in its first step
constexpr int kFirstSteps = 3;        // not timed

// Shapes of published models of these sizes, heads not tied. `batch`: rows a rank and step, which are cut into
// `microbatches`. Of 8B there are many, as in real runs, so that they share the optimizer's step.
struct Preset {
  const char* name;
  int dim, layers, heads, kv_heads, ffn, vocab, sequence, batch, microbatches;
  bool f32_moments;  // and masters; else ours has bf16 moments and PyTorch bf16 parameters
  bool
      together;  // rounds alternate between the sides; else one runs after the other, since each may fill a GPU
};
constexpr Preset kPresets[] = {
    {"toy", 64, 2, 4, 2, 176, 256, 32, 2, 2, true, true},
    {"0.5B", 896, 24, 14, 2, 4864, 151936, 4096, 4, 1, true, false},
    {"1.5B", 1536, 28, 12, 2, 8960, 151936, 4096, 2, 1, true, false},
    {"8B", 4096, 32, 32, 8, 14336, 128256, 4096, 8, 8, false, false},
};

MeshWords words_of(const Preset& p) {
  const auto word = [](const char* name, int value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  return {"device=cuda",
          word("dim", p.dim),
          word("layers", p.layers),
          word("heads", p.heads),
          word("kv_heads", p.kv_heads),
          word("ffn", p.ffn),
          word("vocab", p.vocab),
          word("sequence", p.sequence),
          word("batch", p.batch),
          word("microbatches", p.microbatches),
          word("bf16_moments", p.f32_moments ? 0 : 1)};
}

// Products of a token in forward and backward: 6 for each weight but the embedding's, and attention's, of which the causal
// half counts (as PaLM's appendix B and llm.c do).
double flops_of_token(const Preset& p) {
  const double width = p.dim / p.heads, kv = p.kv_heads * width;
  const double block = 2.0 * p.dim * p.dim + 2.0 * p.dim * kv + 3.0 * p.dim * p.ffn;
  const double weights = p.layers * block + static_cast<double>(p.dim) * p.vocab;
  return 6 * weights + 6.0 * p.layers * p.dim * p.sequence;
}

void start(Trainer& t, const Preset& p) {
  t.tokens = static_cast<double>(p.batch) * p.sequence;
  if (!t.runs()) return;
  t.side->ask("setup", kGpuPatience);
  if (t.runs()) t.side->ask("step " + std::to_string(kFirstSteps), kGpuPatience);
}

void count_memory(Trainer& t) {
  if (!t.runs()) return;
  t.counted_bytes = 0;
  for (const std::string& reply : t.side->ask("memory", kGpuPatience))
    t.counted_bytes = std::max(t.counted_bytes, std::atof(reply.c_str()));
}

struct Measured {
  const Preset& preset;
  std::vector<Trainer> sides;
};

void measure(Measured& m, const GpuSettings& settings, int rounds, const std::string& folder) {
  const Preset& p = m.preset;
  const std::string name = p.name;
  using Start = std::function<Trainer()>;
  const auto ours = [&](const char* side, const char* strategy) -> Start {
    return [&, side, strategy] {
      MeshWords words = words_of(p);
      if (strategy != nullptr) words.push_back(std::string("strategy=") + strategy);
      return start_ours(name + " " + side, settings.ranks, {"bf16", true, words});
    };
  };
  const Start starts[] = {ours("gangway", nullptr), ours("gangway no_shard", "no_shard"), [&] {
                            return start_torch(name + " PyTorch compiled", settings.ranks, folder,
                                               words_of(p), "torch_gpu.py");
                          }};
  const auto run = [&](std::span<Trainer> sides) {
    for (Trainer& t : sides) start(t, p);
    for (int round = 0; round < rounds && !stopped(); ++round) {
      show_progress(name, round, rounds);
      for (Trainer& t : sides) t.step(settings.steps, kGpuPatience);
    }
    for (Trainer& t : sides) {
      count_memory(t);
      t.stop();
    }
  };
  m.sides.reserve(std::size(starts));
  for (const Start& one : starts) {
    m.sides.push_back(one());
    if (!p.together) run({&m.sides.back(), 1});
  }
  if (p.together) run(m.sides);
}

double mfu(const Trainer& t, const Preset& p, const GpuSettings& settings) {
  return t.rate.median() * flops_of_token(p) / settings.ranks / (settings.peak_tflops * 1e12);
}

void print(const Measured& m, const GpuSettings& settings) {
  const Preset& p = m.preset;
  std::printf(
      "\n%s: %d wide, %d layers, vocabulary %d, sequence %d, %d rows a rank in %d microbatches; %.3g FLOP a "
      "token\n",
      p.name, p.dim, p.layers, p.vocab, p.sequence, p.batch, p.microbatches, flops_of_token(p));
  const Trainer& torch = m.sides.back();
  Table table({"", "GPUs", "tokens/s a GPU", "p10..p90", "s a step", "TFLOP/s", "MFU", "GiB a rank", "loss",
               "over PyTorch"});
  for (const Trainer& t : m.sides) {
    if (t.rate.empty()) continue;
    const double share = mfu(t, p, settings), ranks = settings.ranks;
    table.row({t.name, std::to_string(t.ranks), fixed(t.rate.median() / ranks, 0),
               fixed(t.rate.p10() / ranks, 0) + ".." + fixed(t.rate.p90() / ranks, 0),
               fixed(t.seconds.median(), 4), fixed(share * settings.peak_tflops, 1), percent(share),
               fixed(t.counted_bytes / (1 << 30), 2), fixed(t.loss, 4),
               torch.rate.empty() || &t == &torch ? "-" : fixed(paired_ratio(t.rate, torch.rate), 2)});
  }
  table.print();
  for (const Trainer& t : m.sides)
    if (!t.absent.empty())
      std::printf("%s ABSENT: %s\n", t.name.c_str(), t.absent.c_str());
    else if (!t.lost.empty())
      std::printf("%s was lost: %s\n", t.name.c_str(), t.lost.c_str());
  std::fflush(stdout);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.push_back(p.name);
  return names;
}

void train_on_gpus(const GpuSettings& settings, int rounds, const std::string& folder,
                   const std::function<void(nlohmann::json&)>& done) {
  const std::string device =
      output_of("nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null");
  std::printf("%s\n", device.empty() ? "NO GPU: nvidia-smi names none; figures of an emulated one say nothing"
                                     : device.c_str());
  std::printf("bf16 products, AdamW; peak %.1f TFLOP/s; %d rounds of %d steps\n", settings.peak_tflops,
              rounds, settings.steps);
  nlohmann::json report = {
      {"device", device}, {"peak_tflops", settings.peak_tflops}, {"steps", settings.steps}};
  for (const Preset& p : kPresets) {
    const auto& asked = settings.presets;
    if (stopped()) return;
    if (std::find(asked.begin(), asked.end(), p.name) == asked.end()) continue;
    Measured m{p, {}};
    measure(m, settings, rounds, folder);
    print(m, settings);
    for (const Trainer& t : m.sides) {
      report["presets"][p.name][t.name] = json_of(t);
      report["presets"][p.name][t.name]["mfu"] = mfu(t, p, settings);
    }
    done(report);
  }
}

}  // namespace gangway::bench
