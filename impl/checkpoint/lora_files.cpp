#include "checkpoint/lora_files.h"

#include <algorithm>
#include <set>

#include "checkpoint/file_names.h"
#include "checkpoint/lora_config.h"
#include "checkpoint/named_tensors.h"
#include "parallel/model/lora.h"

namespace gangway {
namespace {

constexpr char kStem[] = "adapter_model", kFile[] = "adapter_model.safetensors";
constexpr char kWeight[] = "weight";
constexpr size_t kWeightLength = sizeof kWeight - 1;

// Returns what the files of the model's family put before the names of a layer's parameters. NOT_SUPPORTED:
// the weight has no name of its own there.
std::string prefix_in_files(Model& model, const LoraLayer& layer) {
  const std::string weight = name_in_files(model.root(), layer.prefix + kWeight);
  if (!weight.ends_with(kWeight))
    fail(Code::not_supported, "lora: files have the parameter ", layer.prefix, kWeight, " as ", weight,
         ", and PEFT no adapter for it");
  return weight.substr(0, weight.size() - kWeightLength);
}

struct AdapterFile {
  std::vector<NamedParameter> tensors;  // by PEFT's names
  std::vector<std::string> layers;      // paths of the layers in Hugging Face's model
};

AdapterFile describe(Model& model) {
  AdapterFile file;
  std::set<std::string> seen;
  for (const LoraLayer& layer : lora_layers(model.inspect().parameters())) {
    const std::string prefix = prefix_in_files(model, layer), peft = "base_model.model." + prefix;
    if (!seen.insert(prefix).second)
      fail(Code::not_supported, "lora: files have one module ", prefix, kWeight, " where ", layer.prefix,
           kWeight, " and others are; PEFT has one adapter for all of them");
    file.tensors.push_back({peft + layer.a->name, layer.a});
    file.tensors.push_back({peft + layer.b->name, layer.b});
    file.layers.push_back(prefix.substr(0, prefix.size() - std::min<size_t>(prefix.size(), 1)));
  }
  return file;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Returns target_modules: the last parts of the paths, or the whole paths if other modules end alike.
std::vector<std::string> targets_of(Model& model, const std::vector<std::string>& layers) {
  std::set<std::string> ends;
  for (const std::string& layer : layers) ends.insert(last_part(layer));
  for (const NamedParameter& p : model.inspect().parameters()) {
    const std::string name = name_in_files(model.root(), p.name), end = text(".", kWeight);
    if (is_adapter(*p.parameter) || !name.ends_with(end)) continue;
    const std::string path = name.substr(0, name.size() - end.size());
    if (ends.contains(last_part(path)) && std::find(layers.begin(), layers.end(), path) == layers.end())
      return layers;
  }
  return {ends.begin(), ends.end()};
}

void check_scale(const LoraOptions& stated, const LoraOptions& own, const std::string& path) {
  if (stated.scale() == own.scale()) return;
  const auto facts = [](const LoraOptions& o) {
    return text("alpha ", o.alpha, ", rank ", o.rank, o.rank_stabilized ? ", rank-stabilised" : "");
  };
  fail(Code::invalid_argument, path, " has an adapter of ", facts(stated), ", but the model's is of ",
       facts(own));
}

}  // namespace

void save_lora(Model& model, const std::string& path, const SaveOptions& options, const std::string& base) {
  std::string config;
  save_tensors(
      model, path, options,
      [&] {
        const LoraOptions& own = lora_of(model, "lora_save")->options;
        AdapterFile file = describe(model);
        config =
            adapter_config(own, {targets_of(model, file.layers), base.empty() ? model.origin().folder : base,
                                 decoder_options(model.root()) != nullptr});
        return TensorsToSave{kFile, std::move(file.tensors)};
      },
      [&](SaveFolder& folder) {
        stage(folder, kAdapterConfigName, config);
        folder.commit({kFile, kAdapterConfigName});
      });
}

void load_lora(Model& model, const std::string& folder) {
  load_tensors(model, folder, kStem, {}, [&](const Source&) {
    check_scale(lora_options_of_folder(folder), lora_of(model, "lora_load")->options, folder);
    std::vector<NamedParameter> tensors = describe(model).tensors;
    return TensorsToLoad{tensors, tensors};
  });
}

}  // namespace gangway
