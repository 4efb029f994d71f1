// What one row of a plan does to one module: whether the row fits, the layouts of the module's parameters,
// and the wrapper around the module.
//
// Thread rule: that of the module.
#pragma once

#include <optional>
#include <string>

#include "gang/gang.h"
#include "parallel/fsdp/wrap.h"
#include "parallel/plan.h"
#include "parallel/tensor/flow.h"

namespace gangway {

struct StyledModule {
  ModulePlace place;
  PlanRow row;
  std::string source;  // what gave the row, such as "the llama plan"; empty: the caller
};

// The layout of a parameter over tp.
struct ParameterLayout {
  Placement placement;
  bool partial_gradient = false;
  std::string row;  // the row that gives the layout, for messages; empty: the module has no row
  friend bool operator==(const ParameterLayout& a, const ParameterLayout& b) {
    return a.placement == b.placement && a.partial_gradient == b.partial_gradient;
  }
};
struct PlannedParameter {
  ParameterPtr parameter;
  ParameterLayout layout;
};

constexpr const char* kTensorAxis = "tp";

// Returns whether one of the module's own parameters has a layout over tp already.
bool is_split(const Module& module);

// Returns the row and its source for an error text: "plan row \"...\" of the llama plan".
std::string label(const StyledModule& styled);
// INVALID_ARGUMENT: the style cannot split such a module, or the number of ranks does not divide its size; of
// a vocabulary, that there are more ranks than ids.
void check_style(const StyledModule& styled, const Gang& gang);
RowLayouts layouts_of(const StyledModule& styled);
// Returns the layout of parameter i of the module itself.
ParameterLayout parameter_layout(const StyledModule& styled, size_t i, int ranks);
// Returns whether the row moves a sequence, which can then travel in chunks: the input is gathered for the
// module's first products, or a product of the module is summed into shards of the sequence.
bool moves_sequence(const StyledModule& styled);
// Returns the module with the redistributions around it. A head gets its loss. Takes memory. `chunks`: the
// number of chunks of a sequence that is moved.
ModulePtr styled_module(const StyledModule& styled, const GangPtr& gang, int chunks);

}  // namespace gangway
