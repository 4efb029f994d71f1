// The adapters of a model as PEFT has them in a folder: adapter_model.safetensors and adapter_config.json.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <string>

#include "checkpoint/model_files.h"
#include "checkpoint/named_tensors.h"
#include "nn/lora.h"

namespace gangway {

// The adapters of a model as the checkpoint of a run has them.
struct AdapterFiles {
  std::string
      stem;  // of the safetensors file: adapter/adapter_model, or adapters if PEFT has none like these
  std::vector<PlacedParameter> tensors;
  std::string config;  // the text of adapter/adapter_config.json; empty: PEFT has none like these
};
// Local. `model` has adapters.
AdapterFiles adapter_files(Model& model);
inline constexpr char kAdapterFolder[] = "adapter", kOwnAdapters[] = "adapters";

// Whether the adapters are all that is trained, so that a checkpoint needs nothing else of the model. Local.
bool trains_adapters_alone(Model& model);

// Writes both files in one commit (save_folder.h), under the names of PEFT. `base` names the base model;
// empty: the folder from which the model was loaded. INVALID_STATE: the model has no adapters. NOT_SUPPORTED:
// a layer with an adapter is a part of a fused module in the files of the model's family.
void save_lora(Model& model, const std::string& folder, const SaveOptions& options,
               const std::string& base = "");

// Reads the values of the adapters. Throws as load_model. INVALID_ARGUMENT: the folder's scale
// (lora_alpha, r, use_rslora) is not that of the model, or its layers are not those that have adapters.
void load_lora(Model& model, const std::string& folder);

}  // namespace gangway
