// What state.json says of a model besides its values: facts for information, those that decide what a step
// computes and that a run may change, and the hash of the base of adapters.
//
// Thread rule: one thread at a time; local.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run/save_plan.h"

namespace gangway {

// Returns a JSON object. If the adapters alone are saved, base_hash() was called before.
std::string model_record(Model& model, const SavedSet& set);

// The hash of the base, if the checkpoint has adapters alone.
std::optional<std::string> stored_base(const std::string& record);
std::string base_text(Model& model);  // that of the model now, as a record has it

// Lists what differs between the record and the model now: "lora.alpha: 8 in the checkpoint, 16 now".
void compare_model(const std::string& record, const CheckpointPart& part,
                   std::vector<std::string>& differences);

}  // namespace gangway
