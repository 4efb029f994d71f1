#include "checkpoint/lora_files.h"

#include <algorithm>
#include <set>

#include "checkpoint/lora_config.h"
#include "checkpoint/named_tensors.h"
#include "parallel/model/lora.h"

namespace gangway {
namespace {

constexpr char kStem[] = "adapter_model";
constexpr char kWeight[] = "weight";
constexpr size_t kWeightLength = sizeof kWeight - 1;

// Returns what the files of the model's family put before the names of a layer's parameters. NOT_SUPPORTED:
// the layer is no module there, so that PEFT has no adapter for it.
std::string prefix_in_files(const FilePlaces& places, const LoraLayer& layer) {
  const FilePlace& weight = places.of(layer.prefix + kWeight);
  if (!weight.name.ends_with(kWeight))
    fail(Code::not_supported, "lora: files have the parameter ", layer.prefix, kWeight, " as ", weight.name,
         ", and PEFT no adapter for it");
  if (weight.shape.count() != layer.weight->shape.count())
    fail(Code::not_supported, "lora: files have ", layer.prefix, kWeight, " as a part of ", weight.name,
         ", for which PEFT has one adapter as a whole");
  return weight.name.substr(0, weight.name.size() - kWeightLength);
}

struct AdapterFile {
  std::vector<PlacedParameter> tensors;  // by PEFT's names
  std::vector<std::string> layers;       // paths of the layers in Hugging Face's model
};

AdapterFile describe(Model& model, const FilePlaces& places) {
  AdapterFile file;
  for (const LoraLayer& layer : lora_layers(model.inspect().parameters())) {
    const std::string prefix = prefix_in_files(places, layer), peft = "base_model.model." + prefix;
    for (const ParameterPtr& factor : {layer.a, layer.b})
      file.tensors.push_back({factor, FilePlace{peft + factor->name, factor->shape}});
    file.layers.push_back(prefix.substr(0, prefix.size() - std::min<size_t>(prefix.size(), 1)));  // no dot
  }
  return file;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Returns target_modules: the last parts of the paths, or the whole paths if other modules end alike.
std::vector<std::string> targets_of(Model& model, const FilePlaces& places,
                                    const std::vector<std::string>& layers) {
  std::set<std::string> ends;
  for (const std::string& layer : layers) ends.insert(last_part(layer));
  for (const NamedParameter& p : model.inspect().parameters()) {
    const std::string name = places.of(p.name).name, end = text(".", kWeight);
    if (is_adapter(*p.parameter) || !name.ends_with(end)) continue;
    const std::string path = name.substr(0, name.size() - end.size());
    if (ends.contains(last_part(path)) && std::find(layers.begin(), layers.end(), path) == layers.end())
      return layers;
  }
  return {ends.begin(), ends.end()};
}

// Returns the text of adapter_config.json.
std::string config_of(Model& model, const FilePlaces& places, const AdapterFile& file,
                      const std::string& base) {
  return adapter_config(lora_settings(model.inspect().parameters())->options,
                        {targets_of(model, places, file.layers), base.empty() ? model.origin().folder : base,
                         decoder_options(model.root()) != nullptr});
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

AdapterFiles adapter_files(Model& model) {
  const std::vector<NamedParameter>& parameters = model.inspect().parameters();
  const FilePlaces places(model.root(), model.inspect().names());
  try {
    AdapterFile file = describe(model, places);
    std::string config = config_of(model, places, file, "");
    return {text(kAdapterFolder, "/", kStem), std::move(file.tensors), std::move(config)};
  } catch (const Error& error) {
    if (error.code() != Code::not_supported) throw;
  }
  AdapterFiles own{kOwnAdapters, {}, ""};
  for (const NamedParameter& named : parameters)
    if (is_adapter(*named.parameter))
      own.tensors.push_back({named.parameter, FilePlace{named.name, named.parameter->shape}});
  return own;
}

bool trains_adapters_alone(Model& model) {
  if (model.origin().is_saved_with_adapters) return false;
  const std::vector<NamedParameter>& all = model.inspect().parameters();
  return lora_settings(all) != nullptr && std::all_of(all.begin(), all.end(), [](const NamedParameter& p) {
           return is_adapter(*p.parameter) || !p.parameter->trainable;
         });
}

void save_lora(Model& model, const std::string& path, const SaveOptions& options, const std::string& base) {
  std::string config;
  save_tensors(
      model, path, options,
      [&] {
        lora_of(model, "lora_save");
        const FilePlaces places(model.root(), model.inspect().names());
        AdapterFile file = describe(model, places);
        config = config_of(model, places, file, base);
        return TensorsToSave{kStem, std::move(file.tensors)};
      },
      [&](SaveFolder& folder, const TensorSetPlan& plan) {
        stage(folder, kAdapterConfigName, config);
        std::vector<std::string> names = {kAdapterConfigName};
        for (const TensorSetPlan::File& file : plan.files()) names.push_back(file.name);
        folder.commit(names);
      });
}

void load_lora(Model& model, const std::string& folder) {
  load_tensors(model, folder, kStem, {}, [&](const Source&) {
    check_scale(lora_options_of_folder(folder), lora_of(model, "lora_load")->options, folder);
    const FilePlaces places(model.root(), model.inspect().names());
    TensorsToLoad what{{}, describe(model, places).tensors, nullptr};
    for (const PlacedParameter& tensor : what.names) what.parameters.push_back(tensor.parameter);
    return what;
  });
}

}  // namespace gangway
