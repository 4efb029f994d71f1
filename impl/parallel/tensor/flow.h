// Whether the layouts of a plan meet: the value that each module hands on lies as the next one takes it. Followed through
// the modules whose wiring is known (blocks, attention, feed-forward, chains, a model's head); what other modules hand
// from child to child is not known and passes.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"
#include "parallel/plan.h"

namespace gangway {

// Of a module with a row.
struct RowLayouts {
  std::string row;  // as text
  TensorStyle style;
  ValueLayout input, takes, makes, output;
};
using LayoutsOfModules = std::map<const Module*, RowLayouts>;  // by the module under its wrappers

// INVALID_ARGUMENT: layouts that differ where they meet, or a module with parameters and without a row whose input is not
// one value on all ranks. The root's input is one value on all ranks.
void check_layouts(const Module& root, const LayoutsOfModules& rows);

}  // namespace gangway
