#include "tools/train/explain.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tools/train/build.h"
#include "tools/train/data.h"

namespace gangway::train {
namespace {

std::string amount(uint64_t bytes) {
  char text[32];
  const double mib = static_cast<double>(bytes) / 1048576;
  if (mib >= 1024)
    std::snprintf(text, sizeof text, "%.2f GiB", mib / 1024);
  else
    std::snprintf(text, sizeof text, "%.1f MiB", mib);
  return text;
}

void print_memory(const gw_memory_use& m, int rank) {
  const uint64_t weights = m.master + m.copies + m.region_rows,
                 gradients = m.gradient_shards + m.full_gradients;
  const uint64_t activations = m.activations + m.gradients, rest = m.gathered + m.temporaries;
  std::printf("memory      %s on rank %d: weights %s, gradients %s, optimizer %s, activations %s, other %s\n",
              amount(weights + gradients + m.optimizer + activations + rest).c_str(), rank,
              amount(weights).c_str(), amount(gradients).c_str(), amount(m.optimizer).c_str(),
              amount(activations).c_str(), amount(rest).c_str());
  std::printf(
      "            not counted: the program and its libraries, staged messages, data read ahead; a process "
      "took 2 to 17 %% more, most with tp\n");
  if (m.host != 0) std::printf("            and %s of host memory\n", amount(m.host).c_str());
}

void print_checkpoints(const Settings& s) {
  const std::string& folder = s.text("checkpoint.folder");
  const std::vector<int64_t> steps = complete_steps(folder);
  const int64_t asked = s.integer("checkpoint.step"), every = s.integer("checkpoint.every");
  if (asked >= 0 && std::find(steps.begin(), steps.end(), asked) == steps.end())
    throw Failed(Exit::usage, "checkpoint.step = " + std::to_string(asked) + ", but " + folder +
                                  " has no complete checkpoint of that step");
  const int64_t newest = asked >= 0 ? asked : steps.empty() ? -1 : steps.back();
  const std::string when =
      every > 0 ? "every " + std::to_string(every) + " steps and at the end" : "at the end";
  std::printf("checkpoint  %s: %s, ", folder.c_str(), when.c_str());
  if (newest < 0)
    std::printf("a new run\n");
  else
    std::printf("continues after step %" PRId64 " of %" PRId64 "\n", newest, s.integer("train.steps"));
  if (newest >= 0 && has_fp8(s) && s.text("model.fp8_scaling") == "delayed")
    std::printf(
        "            the histories of delayed FP8 scales begin anew: the numbers are not those of an "
        "undisturbed "
        "run\n");
}

}  // namespace

std::vector<int64_t> complete_steps(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    const bool is_step = name.rfind("step-", 0) == 0 && name.size() > 5 &&
                         name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (is_step && std::filesystem::exists(entry.path() / "state.json"))
      steps.push_back(std::strtoll(name.c_str() + 5, nullptr, 10));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Exit explain(const Settings& s, int ranks) {
  const gw_decoder_options decoder = decoder_of(s);
  std::printf("model       %s: %s, %" PRId64 " layers of width %" PRId64 ", %s\n",
              s.text("model.folder").c_str(), decoder.family, decoder.layers, decoder.dim,
              has_values(s) ? "values from its files" : "fresh values");

  auto mesh = mesh_of(s);
  int64_t product = 1;
  for (const int32_t degree : {mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp})
    product = degree < 0 ? product : std::min<int64_t>(product * degree, INT32_MAX);
  if (ranks % product != 0)
    throw Failed(Exit::usage, "the degrees of [mesh] have the product " + std::to_string(product) +
                                  ", which does not divide --ranks " + std::to_string(ranks));
  for (int32_t* degree : {&mesh.pp, &mesh.dp_replicate, &mesh.dp_shard, &mesh.cp, &mesh.tp})
    if (*degree < 0) *degree = static_cast<int32_t>(ranks / product);
  std::printf("mesh        %d ranks: pp %d, dp_replicate %d, dp_shard %d, cp %d, tp %d\n", ranks, mesh.pp,
              mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp);

  const int data_ranks = mesh.dp_replicate * mesh.dp_shard;
  const Parallel parallel(s);
  auto plan = fresh(gw_plan_options_init);
  plan.decoder = &decoder;
  plan.mesh = &mesh;
  plan.parallel = &parallel.options;
  plan.ranks = ranks;
  plan.microbatches = microbatches_of(s, data_ranks);
  plan.rows = (s.integer("train.global_batch") + data_ranks - 1) / data_ranks / plan.microbatches;
  if (plan.rows < 1) plan.rows = 1;
  plan.sequence = s.integer("data.sequence");
  plan.one_host = s.text("mesh.device") != "cuda" ? 1 : 0;
  const gw_lora_options lora = lora_of(s);
  if (has_adapters(s)) plan.lora = &lora;
  const bool computes_in_fp8 = has_fp8(s);
  const gw_fp8_options fp8 = fp8_of(s);
  if (computes_in_fp8) plan.fp8 = &fp8;
  const OptimizerSettings optimizer(s);
  plan.optimizer = s.text("optimizer.name").c_str();
  plan.option_names = optimizer.names.data();
  plan.option_values = optimizer.values.data();
  plan.option_count = optimizer.names.size();
  auto memory = fresh(gw_memory_use_init);
  int32_t rank = 0;
  check(gw_plan_memory(&plan, &memory, &rank));
  print_memory(memory, rank);

  std::printf("step        %" PRId64 " rows of %" PRId64 " tokens = %" PRId64
              " tokens, in %d microbatches of a rank\n",
              s.integer("train.global_batch"), s.integer("data.sequence"),
              s.integer("train.global_batch") * s.integer("data.sequence"), plan.microbatches);
  print_data(s, decoder.vocab);
  print_checkpoints(s);
  return Exit::done;
}

}  // namespace gangway::train
