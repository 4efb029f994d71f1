// The adapters of a model on gangs (nn/lora.h). All functions: INVALID_STATE if the model has no adapters or
// no memory.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <memory>

#include "nn/lora.h"
#include "parallel/model/model.h"

namespace gangway {

// Returns what the adapters share. Local; `call` begins the text of a refusal.
std::shared_ptr<LoraSettings> lora_of(Model& model, const char* call);

// Switches the adapters on or off: while they are off, the model computes with its other parameters alone.
// MISMATCH: ranks give different values.
void enable_lora(Model& model, bool on);

// Adds scale B A to the weight of each layer with an adapter, in the master's dtype, makes B zero and
// switches the adapters off. INVALID_STATE: they are off.
void merge_lora(Model& model, Stream& stream);

}  // namespace gangway
