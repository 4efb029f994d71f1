// The types of a tensor parallel plan. Before a model runs, each value between its modules is Replicate,
// Varying, Partial or Shard over tp (parallel/plan.h); a row says what its module takes and gives, and the
// data flow that modules declare (nn/data_flow.h) says which module reads which value. The output of a module
// that declares none may have any layout.
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

// The root's input is Replicate. INVALID_ARGUMENT, with the name of the module and both layouts:
//   - a module's output differs from the layout that the next module expects;
//   - a Partial value reaches a module that is not linear, or a module that declares no data flow and has no
//     prepare_input row that takes Partial;
//   - a module keeps whole parameters and gets a value that is not Replicate, but has no row which sums the
//     parts of their gradients over the ranks;
//   - a value of which each rank has a part of the sequence reaches a module that mixes tokens;
//   - the root's output is Partial or Varying.
void check_layouts(const Module& root, const LayoutsOfModules& rows);

}  // namespace gangway
