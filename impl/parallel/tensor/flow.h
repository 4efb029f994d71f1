// Checks that the layouts of a plan fit together: the layout of each module's output is the one that the next
// module expects. The check follows the data flow that each module declares (nn/data_flow.h). The output of a
// module that declares none may have any layout.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"
#include "parallel/plan.h"

namespace gangway {

// The layouts of the input and output of a module that has a row in the plan.
struct RowLayouts {
  std::string row;  // as text
  TensorStyle style;
  ValueLayout input, takes, makes, output;
};
using LayoutsOfModules = std::map<const Module*, RowLayouts>;  // by the module under its wrappers

// The root's input is Replicate. INVALID_ARGUMENT: a module's output differs from the layout that the next
// module expects, or a module that has parameters but no row gets an input that is not Replicate.
void check_layouts(const Module& root, const LayoutsOfModules& rows);

}  // namespace gangway
