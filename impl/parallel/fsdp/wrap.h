// Which modules of a tree become units, and putting the wrapper around one. Pure tree work: nothing here
// takes memory or talks to peers.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "parallel/fsdp/fsdp_state.h"
#include "parallel/fsdp/replicate.h"

namespace gangway {

// One place in the tree: a module with all its wrappers.
struct Place {
  std::string label;         // path, for errors; the root's and an unnamed child's in words
  Module* parent = nullptr;  // null: the root
  size_t index = 0;
  ModulePtr module;  // outermost wrapper
  std::string path;
  bool named = true;  // false: an unnamed child, which no pattern means
};

// Degrees that a tree is not made for, yet. INVALID_STATE names the call that comes before `call`: with tp over 1 the layout
// of every parameter says how it lies over tp (tensor/apply.h, or a module that splits itself), with cp over 1 attention
// is spread over it (context/attention.h).
void check_degrees(const Gangs& gangs, const ModulePtr& root, const char* call);
// NOT_SUPPORTED: degrees besides those of data, where the caller computes by itself.
void check_data_degrees(const Gangs& gangs);

// Every place, the root first, in the order of the tree.
std::vector<Place> all_places(const ModulePtr& root);
// Places whose path matches; "" is the root. A pattern with a `*` means modules with parameters only. NOT_FOUND names the
// pattern.
std::vector<Place> match_places(const ModulePtr& root, const std::string& pattern);
// Default units: every child of the root that has parameters and shares none with the rest; then the root.
std::vector<Place> default_places(const ModulePtr& root);
// Modules for recomputation: every block; a tree without them: every child of the root that has parameters.
std::vector<Place> block_places(const ModulePtr& root);

// INVALID_STATE: the place is a unit or lies in one, so that the order of calls was not inside out.
// INVALID_ARGUMENT: a parameter that another unit has or would have too (tied), or a module that its parent
// computes. NOT_SUPPORTED: a custom module that does not take the compute dtype (`master` where there is no
// param_dtype; none: not checked).
void check_unit(const ModulePtr& root, const Place& place, const ShardOptions& options, DType master);

// With the dtypes that every parameter gets at last. NOT_SUPPORTED: a custom module that does not take one of
// its own. INVALID_ARGUMENT: products of one unit that hand on to each other, but differ.
void check_dtypes(const Module& root, DType master);

// INVALID_ARGUMENT: one of the places lies in another, so that one call cannot say whose unit the parameters
// are.
void check_apart(const std::vector<Place>& places);

// Makes the unit of all parameters below that no unit has, and wraps. `buckets` for NO_SHARD. `scheduled`: in a stage of a
// pipeline.
void wrap_unit(ModulePtr& root, const Place& place, const ShardOptions& options,
               const std::shared_ptr<FsdpState>& domain, const std::shared_ptr<Buckets>& buckets,
               bool scheduled = false);
void replace(ModulePtr& root, const Place& place, ModulePtr wrapper);

// Units in the order of the tree.
std::vector<const ParamGroup*> units_of(const Module& root);
// Parameters that no unit has.
std::vector<NamedParameter> free_parameters(const Module& root);

}  // namespace gangway
