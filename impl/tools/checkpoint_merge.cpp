// The command merge: a base and the adapters that were trained over it as one model.
#include <cstdio>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/lora_config.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/model_files.h"
#include "checkpoint/run/base_hash.h"
#include "checkpoint/run/model_record.h"
#include "checkpoint/run/verify.h"
#include "parallel/model/lora.h"
#include "tools/checkpoint_commands.h"

namespace gangway {
namespace {

// Adapters over another base would make a model that nobody has trained.
void check_base(Model& model, const std::string& checkpoint, const std::string& base) {
  if (!is_there(checkpoint + "/" + kStateName)) return;  // a folder of PEFT alone does not know its base
  const CheckpointState state = read_state(checkpoint);
  const auto record = state.models.find("");
  if (record == state.models.end()) return;
  const std::optional<std::string> stored = stored_base(record->second);
  base_hash(model);
  if (stored && *stored != base_text(model))
    fail(Code::invalid_argument, "merge: ", base, " is not the base of ", checkpoint,
         ": its values have the hash ", base_text(model), ", those that the adapters were trained over ",
         *stored);
}

}  // namespace

void merge_adapters(const MergeCommand& command) {
  if (is_there(command.out))
    fail(Code::invalid_argument, command.out, " exists already; choose a folder that does not exist yet");
  const std::string checkpoint = checkpoint_in(command.folder);
  const bool is_adapter_folder = is_there(checkpoint + "/" + kAdapterConfigName);
  const std::string adapter = is_adapter_folder ? checkpoint : checkpoint + "/" + kAdapterFolder;
  if (!is_there(adapter + "/" + kAdapterConfigName))
    fail(Code::invalid_argument, "merge: ", checkpoint, " has no adapters in the form of PEFT (",
         kAdapterFolder, "/", kAdapterConfigName, ")");
  if (!is_adapter_folder) verify_checkpoint(checkpoint, read_state(checkpoint));

  const ModulePtr decoder = make_decoder(decoder_options_of_folder(command.base));
  apply_lora(decoder, lora_options_of_folder(adapter));
  Model model(decoder, nullptr);
  model.build().materialize(0, DType::f32);
  load_model(model, command.base);
  check_base(model, checkpoint, command.base);
  load_lora(model, adapter);
  merge_lora(model, model.device().stream());
  SaveOptions options;
  options.dtype = command.dtype.value_or(DType{});
  options.max_file_bytes = command.max_file_bytes;
  save_model(model, command.out, options);
  std::printf("%s: %s with the adapters of %s\n", command.out.c_str(), command.base.c_str(), adapter.c_str());
}

}  // namespace gangway
