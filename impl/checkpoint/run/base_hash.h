// A hash of the base of a model with adapters: of all values but those of the adapters. A checkpoint that
// holds the adapters alone names its base by it, so that they are never restored over another one.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include "parallel/model/model.h"

namespace gangway {

// The same on every mesh, and for every dtype of the masters that holds the values exactly. Computed once,
// and kept in model.origin().
uint64_t base_hash(Model& model);

}  // namespace gangway
