#include "tools/plan_model_command.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/error.h"
#include "checkpoint/config_json.h"

namespace gangway {
namespace {

const std::map<std::string, DType> kDtypes = {
    {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
const std::map<std::string, Strategy> kStrategies = {{"full_shard", Strategy::full_shard},
                                                     {"shard_grad_op", Strategy::shard_grad_op},
                                                     {"no_shard", Strategy::no_shard}};
const std::map<std::string, RecomputeKind> kRecompute = {
    {"none", RecomputeKind::none}, {"selective", RecomputeKind::selective}, {"full", RecomputeKind::full}};

DecoderOptions decoder_of(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return decoder_options_of_folder(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(Code::io, "cannot read ", path);
  return parse_config_json(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

// Parses "80GiB", "512 MiB", "80GB" or "1000".
uint64_t bytes_of(const std::string& text) {
  const std::map<std::string, double> units = {
      {"", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"MB", 1e6}, {"GB", 1e9}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  const auto found = units.find(unit);
  if (error != std::errc() || number <= 0 || found == units.end())
    fail(Code::invalid_argument, "--memory is \"", text,
         "\", not a number with KiB, MiB, GiB, MB, GB or nothing behind it");
  return static_cast<uint64_t>(number * found->second);
}

std::string amount(uint64_t bytes) {
  char out[32];
  const double mib = static_cast<double>(bytes) / 1048576;
  if (mib >= 1024)
    std::snprintf(out, sizeof out, "%.2f GiB", mib / 1024);
  else
    std::snprintf(out, sizeof out, "%.1f MiB", mib);
  return out;
}

// Returns the axes with degrees above 1, such as "pp 2 x dp_shard 4".
std::string mesh_text(const MeshOptions& m) {
  std::string out;
  for (const auto& [name, degree] : {std::pair{"pp", m.pp},
                                     {"dp_replicate", m.dp_replicate},
                                     {"dp_shard", m.dp_shard},
                                     {"cp", m.cp},
                                     {"tp", m.tp}})
    if (degree > 1) out += (out.empty() ? "" : " x ") + std::string(name) + " " + std::to_string(degree);
  return out.empty() ? "one rank" : out;
}

void print_row(const MeshPlan& plan, uint64_t limit) {
  const MemoryUse& m = plan.use;
  std::printf("%-44s%5d%13s%13s%13s%13s%13s%13s%13s%6s", mesh_text(plan.degrees).c_str(), plan.microbatches,
              amount(m.master + m.copies + m.region_rows).c_str(), amount(m.gathered).c_str(),
              amount(m.gradient_shards + m.full_gradients).c_str(), amount(m.optimizer).c_str(),
              amount(m.activations + m.gradients).c_str(), amount(m.temporaries).c_str(),
              amount(m.total()).c_str(),
              limit == 0           ? ""
              : m.total() <= limit ? "fits"
                                   : "no");
  if (m.host != 0) std::printf("  %s on the host", amount(m.host).c_str());
  std::printf("\n");
}

void print(const ModelCommand& command, const std::vector<MeshPlan>& plans, uint64_t limit) {
  const ModelPlanRequest& plan = command.plan;
  std::printf(
      "%d ranks, microbatches of %lld x %lld tokens, %s, recompute %s, parameters computed in %s, AdamW; "
      "bytes of tensors on the rank that takes most\n"
      "not counted: the program and its libraries, staged messages of collectives, data read ahead; a "
      "process of a "
      "host took 2 to 17 %% more, most with tp\n\n",
      plan.ranks, static_cast<long long>(plan.rows), static_cast<long long>(plan.sequence),
      command.strategy.c_str(), command.recompute.c_str(), command.param_dtype.c_str());
  std::printf("%-44s%5s%13s%13s%13s%13s%13s%13s%13s\n", "mesh", "micro", "parameters", "gathered",
              "gradients", "optimizer", "activations", "temporaries", "total");
  int shown = 0, left_out = 0;
  for (const MeshPlan& p : plans)
    if (p.refusal.empty() && shown < command.lines) {
      print_row(p, limit);
      ++shown;
    } else if (p.refusal.empty()) {
      ++left_out;
    }
  if (left_out > 0) std::printf("... and %d that take more (--lines shows them)\n", left_out);
  for (const MeshPlan& p : plans)
    if (!p.refusal.empty()) std::printf("%-44s%s\n", mesh_text(p.degrees).c_str(), p.refusal.c_str());
  if (limit == 0) return;
  const auto fits = std::count_if(plans.begin(), plans.end(), [&](const MeshPlan& p) {
    return p.refusal.empty() && p.use.total() <= limit;
  });
  std::printf("\n%td of %zu meshes fit %s\n", fits, plans.size(), command.memory.c_str());
}

std::vector<tools::Option> mesh_options(MeshOptions& degrees) {
  std::vector<tools::Option> options;
  for (const auto& [name, degree] : {std::pair{"--pp", &degrees.pp},
                                     {"--dp-replicate", &degrees.dp_replicate},
                                     {"--dp-shard", &degrees.dp_shard},
                                     {"--cp", &degrees.cp},
                                     {"--tp", &degrees.tp}})
    options.push_back(
        {name, degree, "this degree alone; default: all that divide the ranks", {.must = tools::Positive{}}});
  return options;
}

std::vector<tools::Option> size_options(ModelCommand& c) {
  return {
      {"config", &c.file, "config.json of Hugging Face, or its folder", {.required = true}},
      {"--gpus", &c.gpus, "so many ranks, each with a memory of its own"},
      {"--ranks",
       &c.ranks,
       "so many processes of one host, which share gathered weights",
       {.excludes = {"--gpus"}}},
  };
}

std::vector<tools::Option> step_options(ModelCommand& c) {
  return {
      {"--rows", &c.plan.rows, "of a microbatch", {.must = tools::Positive{}, .default_shown = true}},
      {"--sequence", &c.plan.sequence, "tokens of a row; default: 4096, or what the model has positions for"},
      {"--microbatches", &c.plan.microbatches, "of a step; default: twice pp, 1 without pp"},
      {"--param-dtype",
       &c.param_dtype,
       "that parameters are computed in",
       {.must = tools::names_of(kDtypes), .default_shown = true}},
      {"--moments",
       &c.moments,
       "dtype of AdamW's moments",
       {.must = tools::OneOf{{"f32", "bf16"}}, .default_shown = true}},
  };
}

std::vector<tools::Option> way_options(ModelCommand& c) {
  ParallelOptions& options = c.plan.options;
  return {
      {"--strategy", &c.strategy, "", {.must = tools::names_of(kStrategies), .default_shown = true}},
      {"--cpu-offload",
       &options.shard.cpu_offload,
       "shards, gradients and optimizer state in memory of the host",
       {.needs = {"--gpus"}}},
      {"--activation-offload",
       &options.activation_offload,
       "what blocks save in memory of the host",
       {.needs = {"--gpus"}}},
      {"--recompute", &c.recompute, "", {.must = tools::names_of(kRecompute), .default_shown = true}},
      {"--schedule", &options.pipeline.schedule, "of meshes with pp", {.default_shown = true}},
      {"--sequence-parallel", &options.tensor.family.sequence_parallel, "beside tp"},
      {"--memory", &c.memory, "what a rank has, like 80GiB: says which meshes fit"},
      {"--lines", &c.lines, "of the table", {.must = tools::Positive{}, .default_shown = true}},
  };
}

}  // namespace

tools::CommandLine model_line(ModelCommand& c) {
  return {"model", "memory per rank of a model's training, by mesh",
          tools::joined({size_options(c), mesh_options(c.plan.degrees), step_options(c), way_options(c)})};
}

void run_model(ModelCommand& c) {
  const uint64_t limit = c.memory.empty() ? 0 : bytes_of(c.memory);
  ModelPlanRequest& plan = c.plan;
  plan.decoder = decoder_of(c.file);
  plan.one_host = c.ranks > 0;
  plan.ranks = plan.one_host ? c.ranks : c.gpus;
  if (plan.ranks < 1) fail(Code::invalid_argument, "--gpus or --ranks is missing, or below 1");
  if (plan.sequence == 0) plan.sequence = std::min<int64_t>(4096, plan.decoder.max_positions);
  plan.options.shard.strategy = kStrategies.at(c.strategy);
  if (c.param_dtype != "f32") plan.options.shard.param_dtype = kDtypes.at(c.param_dtype);
  plan.options.recompute.kind = kRecompute.at(c.recompute);
  plan.moment_dtype = kDtypes.at(c.moments);
  print(c, plan_meshes(plan), limit);
}

}  // namespace gangway
