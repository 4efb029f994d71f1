// One module and one row of a plan: whether they fit, how the module's parameters lie, and what stands around
// it.
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
  Place place;
  PlanRow row;
  std::string source;  // who gave the row: "" is the caller
};

// How a parameter lies over tp.
struct ParameterLayout {
  Placement placement;
  bool partial_gradient = false;
  std::string row;  // the row that says so; empty: none
  friend bool operator==(const ParameterLayout& a, const ParameterLayout& b) {
    return a.placement == b.placement && a.partial_gradient == b.partial_gradient;
  }
};
struct PlannedParameter {
  ParameterPtr parameter;
  ParameterLayout layout;
};

constexpr const char* kTensorAxis = "tp";

// Whether one of the module's own parameters says already how it lies over tp.
bool is_split(const Module& module);

// Returns the row and its source for an error text: "plan row \"...\" of the llama plan".
std::string label(const StyledModule& styled);
// INVALID_ARGUMENT: the style cannot split such a module, or the gang does not divide it.
void check_style(const StyledModule& styled, const Gang& gang);
RowLayouts layouts_of(const StyledModule& styled);
// Returns the layout of parameter i of the module itself.
ParameterLayout parameter_layout(const StyledModule& styled, size_t i, int ranks);
// Whether the row moves a sequence, so that it can go in chunks: it is gathered for products that the module
// starts with, or a product of the module is summed into parts of a sequence.
bool moves_sequence(const StyledModule& styled);
// Returns the module with the redistributions around it. A head gets its loss. Takes memory. `chunks`: into
// how many chunks a moved sequence is cut.
ModulePtr styled_module(const StyledModule& styled, const GangPtr& gang, int chunks);

}  // namespace gangway
