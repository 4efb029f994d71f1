// Selects the modules of a tree that become parameter groups, and wraps them. It only changes the tree: it
// allocates no tensors and communicates with no peers.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// One place in a module tree: a module with all its wrappers.
struct ModulePlace {
  std::string label;         // for errors: the path, or a description of the root or an unnamed child
  Module* parent = nullptr;  // null: the root
  size_t index = 0;
  ModulePtr module;  // the outermost wrapper
  std::string path;
  bool named = true;  // false: an unnamed child, which no pattern matches
};

// Returns every place in the order of the tree, the root first.
std::vector<ModulePlace> all_places(const ModulePtr& root);
// Returns the places whose path matches; "" matches the root. A pattern with a `*` matches only modules that
// have parameters. NOT_FOUND: nothing matches.
std::vector<ModulePlace> match_places(const ModulePtr& root, const std::string& pattern);
// Returns the default parameter groups, each before those around it: what custom modules name
// (CustomOptions::parameter_groups), then, if the root names none, every child of the root that has further
// parameters and shares none of its parameters with the rest of the tree, and then the root. NOT_FOUND:
// nothing matches a pattern of theirs.
std::vector<ModulePlace> default_places(const ModulePtr& root);
// Returns the modules that recomputation applies to: every block, or in a tree without blocks every child of
// the root that has parameters.
std::vector<ModulePlace> block_places(const ModulePtr& root);

// Checks that every place can become a parameter group. INVALID_STATE: a place already is a parameter group
// or lies in one; inner modules must be wrapped first. INVALID_ARGUMENT: a parameter is tied to a module
// outside of the place, or the module is computed by its parent. NOT_SUPPORTED: a custom module does not
// accept the compute dtype, which is param_dtype or else `master` (none: not checked).
void check_groups(const ModulePtr& root, const std::vector<ModulePlace>& places, const ShardOptions& options,
                  DType master);

// Checks the final compute dtype of every parameter. NOT_SUPPORTED: a custom module does not accept the dtype
// of one of its parameters. INVALID_ARGUMENT: two products in one parameter group pass values to each other
// without a cast, but have different dtypes.
void check_dtypes(const Module& root, DType master);

// INVALID_ARGUMENT: one place lies in another, so it is ambiguous which parameter group gets the inner
// parameters.
void check_apart(const std::vector<ModulePlace>& places);

// Makes a parameter group of each place, of all parameters below it that are in no parameter group yet, and
// wraps the module. `scheduled` says that the places are in a stage of a pipeline.
void wrap_groups(ModulePtr& root, const std::vector<ModulePlace>& places, const ShardOptions& options,
                 const std::shared_ptr<FsdpState>& state, bool scheduled = false);
void replace(ModulePtr& root, const ModulePlace& place, ModulePtr wrapper);

// Returns all parameter groups in the order of the tree, the outer one first.
std::vector<const ParameterGroup*> groups_in(const Module& root);
// Returns the parameters that are in no parameter group.
std::vector<NamedParameter> free_parameters(const Module& root);

}  // namespace gangway
