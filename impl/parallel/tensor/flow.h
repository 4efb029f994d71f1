// Checks that the layouts of a plan meet: the value that each module hands on lies as the next one takes it.
// The check follows the data flow that each module declares (nn/data_flow.h). A module that declares none may
// hand on anything.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"
#include "parallel/plan.h"

namespace gangway {

// How the values of one module lie that has a row in the plan.
struct RowLayouts {
  std::string row;  // as text
  TensorStyle style;
  ValueLayout input, takes, makes, output;
};
using LayoutsOfModules = std::map<const Module*, RowLayouts>;  // by the module under its wrappers

// The root's input is one value on all ranks. INVALID_ARGUMENT: two layouts differ where they meet, or a
// module has parameters, no row, and an input that is not one value on all ranks.
void check_layouts(const Module& root, const LayoutsOfModules& rows);

}  // namespace gangway
