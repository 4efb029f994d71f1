#include "checkpoint/run/describe_save.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/config_json.h"
#include "checkpoint/file_names.h"
#include "checkpoint/lora_config.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/run/model_record.h"
#include "checkpoint/run/optimizer_record.h"

namespace gangway {
namespace {

std::string mesh_json(const Mesh& mesh) {
  JsonObject object(0);
  for (const Axis axis : {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp})
    object.add(name(axis), json_scalar(mesh.degree(axis)));
  return std::move(object).close();
}

// The dtype is that of the first tensor; others may differ if the masters do.
DType dtype_of(const SavedSet& model) {
  return model.tensors.empty() ? DType::f32 : model.tensors.begin()->second.dtype;
}

// Returns the newest checkpoint in the folder in which `checkpoint` was one; "": there is none.
std::string newest_beside(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  const fs::path gone = fs::path(checkpoint).lexically_normal();
  std::string newest;
  std::error_code none;
  if (gone.filename().native().rfind("step-", 0) != 0) return newest;
  for (fs::directory_iterator at(gone.parent_path(), none), end; !none && at != end; at.increment(none))
    if (at->path().filename().native().rfind("step-", 0) == 0 && fs::exists(at->path() / "state.json", none))
      newest = std::max(newest, at->path().native());
  return newest;
}

// The folder that the caller named; or else the one from which the model was loaded. It may be gone: a
// checkpoint of a run, which was restored, is removed when there are newer ones, which have its files.
std::string folder_to_carry(const CheckpointPart& part) {
  if (!part.carry_from.empty()) return part.carry_from;
  const std::string& folder = part.model->origin().folder;
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) ? folder : newest_beside(folder);
}

// A folder with adapters gets no config.json, so that no tool opens it as the base alone.
void add_config(SaveJob& job, const CheckpointPart& part, const SavedSet& set) {
  Model& model = *part.model;
  if (lora_settings(model.inspect().parameters()) == nullptr) {
    if (const DecoderOptions* const options = decoder_options(model.root()))
      job.texts.emplace_back(name_in_checkpoint(part.name, kConfigName),
                             config_json(*options, dtype_of(set), model.origin().config));
    return;
  }
  if (!trains_adapters_alone(model)) return;
  if (const AdapterFiles files = adapter_files(model); !files.config.empty())
    job.texts.emplace_back(name_in_checkpoint(part.name, text(kAdapterFolder, "/", kAdapterConfigName)),
                           files.config);
}

}  // namespace

void describe_save(SaveJob& job, const std::vector<CheckpointPart>& parts, CheckpointState state) {
  job.state = std::move(state);
  job.state.mesh = mesh_json(parts.front().model->gangs().mesh());
  const bool first = parts.front().model->gangs().root()->rank() == 0;
  size_t set = 0;  // each part has its model's set, then its optimizer's
  for (const CheckpointPart& part : parts) {
    const SavedSet& model = job.plan.sets.at(set);
    job.state.models[part.name] = model_record(*part.model, model);
    if (part.optimizer != nullptr) job.state.optimizers[part.name] = record_of(*part.optimizer);
    set += part.optimizer != nullptr ? 2 : 1;
    add_config(job, part, model);
    const std::string folder = folder_to_carry(part);
    if (!first || folder.empty()) continue;
    for (const std::string& file : files_to_carry(folder))
      job.carried.emplace_back(name_in_checkpoint(part.name, file), folder + "/" + file);
  }
}

std::string facts_of_save(const std::vector<CheckpointPart>& parts, const CheckpointState& state) {
  CallSignature signature("checkpoint");
  signature.add("step", state.step);
  signature.add("tokens", state.tokens);
  for (const auto& [name, value] : state.texts) signature.add("text " + name, value);
  for (const CheckpointPart& part : parts) {
    signature.add("part", part.name);
    signature.add("has an optimizer", part.optimizer != nullptr);
    if (part.optimizer != nullptr) part.optimizer->add_to_signature(signature);
  }
  return signature.text();
}

}  // namespace gangway
