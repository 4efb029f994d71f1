#include "tools/train/build.h"

#include <algorithm>
#include <filesystem>

#include "tools/train/status.h"

namespace gangway::train {
namespace {

// The position of `word` in the key's range; words of a choice stand in the order of the ABI's numbers.
template <typename T>
T choice(const std::string& word, std::initializer_list<std::pair<const char*, T>> values) {
  for (const auto& [name, value] : values)
    if (word == name) return value;
  return values.begin()->second;
}

gw_dtype dtype_of(const std::string& word) {
  return choice<gw_dtype>(word, {{"f32", GW_DTYPE_NONE}, {"bf16", GW_BF16}, {"f16", GW_F16}});
}

// A sample that the model has no positions for is refused before the run, not after it. Ranks of cp and pp
// make no sample.
void check_sample(const Settings& s, const gw_decoder_options& decoder) {
  const auto given = static_cast<int64_t>(s.text("sample.prompt").size());
  const int64_t asked = s.integer("sample.tokens");
  if (given == 0 || s.degree("mesh.cp") > 1 || s.degree("mesh.pp") > 1) return;
  constexpr int64_t kMostOfBytes = 512;  // bytes and some marks, rounded up
  if (decoder.vocab > kMostOfBytes)
    throw Failed(Exit::usage, "sample.prompt is read as bytes, but the model has " +
                                  std::to_string(decoder.vocab) +
                                  " ids, which are those of a tokenizer; leave it out, and generate with the "
                                  "tokenizer from a checkpoint");
  if (given + asked - 1 <= decoder.max_positions) return;
  throw Failed(Exit::usage, "sample.prompt has " + std::to_string(given) + " bytes and sample.tokens is " +
                                std::to_string(asked) + ", but the model has max_position_embeddings " +
                                std::to_string(decoder.max_positions) + "; set sample.tokens to fewer");
}

}  // namespace

Parallel::Parallel(const Settings& s)
    : options(fresh(gw_parallel_options_init)),
      shard_(fresh(gw_shard_options_init)),
      tensor_(fresh(gw_tensor_parallel_options_init)),
      pipeline_(fresh(gw_pipeline_options_init)),
      schedule_(s.text("mesh.pipeline")) {
  shard_.strategy = choice<gw_strategy>(
      s.text("mesh.strategy"),
      {{"full_shard", GW_FULL_SHARD}, {"shard_grad_op", GW_SHARD_GRAD_OP}, {"no_shard", GW_NO_SHARD}});
  shard_.param_dtype = dtype_of(s.text("train.param_dtype"));
  tensor_.sequence_parallel = s.flag("mesh.sequence_parallel") ? 1 : 0;
  tensor_.loss_parallel = s.flag("mesh.loss_parallel") ? 1 : 0;
  pipeline_.schedule = schedule_.c_str();
  pipeline_.microbatches = 0;  // those of each step
  options.shard = &shard_;
  options.tensor_parallel = &tensor_;
  options.pipeline = &pipeline_;
  options.context_method =
      choice<gw_context_method>(s.text("mesh.context"), {{"ring", GW_CONTEXT_RING},
                                                         {"all_gather", GW_CONTEXT_ALL_GATHER},
                                                         {"all_to_all", GW_CONTEXT_ALL_TO_ALL}});
  options.recompute = choice<gw_recompute_kind>(
      s.text("train.recompute"),
      {{"none", GW_RECOMPUTE_NONE}, {"selective", GW_RECOMPUTE_SELECTIVE}, {"full", GW_RECOMPUTE_FULL}});
  options.activation_offload = s.flag("train.activation_offload") ? 1 : 0;
  options.seed = static_cast<uint64_t>(s.integer("train.seed"));
}

gw_mesh_options mesh_of(const Settings& s) {
  auto mesh = fresh(gw_mesh_options_init);
  mesh.dp_replicate = s.degree("mesh.dp_replicate");
  mesh.dp_shard = s.degree("mesh.dp_shard");
  mesh.cp = s.degree("mesh.cp");
  mesh.tp = s.degree("mesh.tp");
  mesh.pp = s.degree("mesh.pp");
  return mesh;
}

GangsHandle make_gangs(const Settings& s) {
  const gw_mesh_options mesh = mesh_of(s);
  GangHandle root;
  if (const std::string& device = s.text("mesh.device"); !device.empty()) {
    auto options = fresh(gw_gang_options_init);
    options.device = device.c_str();
    gw_gang* made = nullptr;
    check(gw_gang_create(&options, &made));
    root.reset(made);
  }
  gw_gangs* gangs = nullptr;
  check(gw_gangs_create(root.get(), &mesh, &gangs));
  return GangsHandle(gangs);
}

bool has_values(const Settings& s) {
  namespace fs = std::filesystem;
  const std::string& wanted = s.text("model.values");
  if (wanted != "auto") return wanted == "load";
  // The weights of PyTorch count, so that the load refuses them: training must not begin with fresh values.
  const fs::path folder = s.text("model.folder");
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    std::error_code none;
    if (fs::exists(folder / name, none)) return true;
  }
  return false;
}

gw_decoder_options decoder_of(const Settings& s) {
  auto decoder = fresh(gw_decoder_options_init);
  check(gw_decoder_options_from_folder(s.text("model.folder").c_str(), &decoder));
  if (s.text("model.attention_dropout") == "none") decoder.attention_dropout = 0;
  check_sample(s, decoder);
  return decoder;
}

bool has_adapters(const Settings& s) { return s.integer("lora.rank") > 0; }

gw_lora_options lora_of(const Settings& s) {
  auto lora = fresh(gw_lora_options_init);
  lora.rank = s.integer("lora.rank");
  lora.alpha = s.number("lora.alpha");
  lora.dropout = s.number("lora.dropout");
  lora.rank_stabilized = s.flag("lora.rank_stabilized") ? 1 : 0;
  lora.seed = static_cast<uint64_t>(s.integer("train.seed"));
  if (!s.text("lora.patterns").empty()) lora.patterns = s.text("lora.patterns").c_str();
  return lora;
}

bool has_fp8(const Settings& s) {
  if (!s.text("model.fp8").empty()) return true;
  for (const char* key : {"model.fp8_scaling", "model.fp8_history"})
    if (s.given(key))
      throw Failed(Exit::usage,
                   std::string(key) + " is set, but model.fp8 names no layers; \"**\" names all");
  return false;
}

gw_fp8_options fp8_of(const Settings& s) {
  auto fp8 = fresh(gw_fp8_options_init);
  fp8.patterns = s.text("model.fp8").c_str();
  fp8.scaling =
      choice<gw_fp8_scaling>(s.text("model.fp8_scaling"),
                             {{"tensor", GW_FP8_TENSOR}, {"delayed", GW_FP8_DELAYED}, {"row", GW_FP8_ROW}});
  fp8.history = static_cast<int32_t>(s.integer("model.fp8_history"));
  return fp8;
}

ModelHandle make_model(const Settings& s, gw_gangs* gangs, const gw_decoder_options& decoder) {
  gw_module* made = nullptr;
  check(gw_decoder_create(&decoder, &made));
  ModelHandle model(made);
  if (has_adapters(s)) {
    const gw_lora_options lora = lora_of(s);
    check(gw_lora_apply(made, &lora));
  }
  if (has_fp8(s)) {
    const gw_fp8_options fp8 = fp8_of(s);
    check(gw_fp8_apply(made, &fp8));
  }
  const Parallel parallel(s);
  check(gw_parallelize(made, gangs, &parallel.options));
  return model;
}

OptimizerSettings::OptimizerSettings(const Settings& s) {
  for (const auto& [name, value] : s.optimizer_options()) {
    names.push_back(name.c_str());
    values.push_back(value.text.c_str());
  }
  // The decay of the rate ends with the run, unless the file says otherwise.
  steps_ = std::to_string(s.integer("train.steps"));
  if (s.optimizer_options().count("total_steps") == 0 && s.optimizer_options().count("schedule") != 0) {
    names.push_back("total_steps");
    values.push_back(steps_.c_str());
  }
}

OptimizerHandle make_optimizer(const Settings& s, gw_module* model) {
  const OptimizerSettings options(s);
  gw_optimizer* optimizer = nullptr;
  check(gw_optimizer_create(model, s.text("optimizer.name").c_str(), options.names.data(),
                            options.values.data(), options.names.size(), &optimizer));
  return OptimizerHandle(optimizer);
}

int microbatches_of(const Settings& s, int data_ranks) {
  const int64_t rows = (s.integer("train.global_batch") + data_ranks - 1) / data_ranks;
  const int64_t most = s.integer("train.microbatch");
  return most == 0 ? 1 : static_cast<int>((rows + most - 1) / most);
}

}  // namespace gangway::train
