// Carries out a tensor parallel plan: sets the layouts of parameters, and puts redistributions around
// modules. A new style is a row of plan.h's table, and its case in style.cpp.
//
// Rows come from the caller, from modules (Module::parallel_plan) and from the plan of a decoder's family.
// The rows of a module or a decoder are for the modules inside it. If several sources have a row for one
// module, the caller's row is used, else that of the innermost module, else that of the family.
//
// Thread rule: one thread at a time. Calls are local, but all ranks of the gang must make the same ones.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/options.h"
#include "parallel/tensor/style.h"

namespace gangway {

class TensorPlan {
 public:
  // Resolves the rows and checks them; nothing changes. NOT_FOUND: no module matches a row of the caller or
  // of a module. INVALID_ARGUMENT, with the row and the reason: two rows of one source for one module, a
  // module that a style cannot split, sizes that the gang does not divide, layouts that do not meet, a tied
  // parameter with two layouts. Also overlap_chunks below 1, or over 1 where no row moves a sequence.
  // INVALID_STATE: a parameter is split over tp already.
  TensorPlan(const ModulePtr& root, const TensorOptions& options, GangPtr gang);

  // Changes nothing if the gang has one rank.
  void apply(ModulePtr& root) const;
  const std::vector<StyledModule>& modules() const { return modules_; }

 private:
  void resolve(const ModulePtr& root, const TensorOptions& options);
  void check_chunks() const;
  // The state of a walk over the tree.
  struct Walk {
    std::map<const Module*, const StyledModule*> styled;  // by the module under its wrappers
    std::map<const Parameter*, size_t> parameters;        // index in parameters_
  };
  void plan_parameters(const Module& module, const StyledModule* outer, Walk& walk);
  void add_parameter(const ParameterPtr& parameter, const ParameterLayout& layout, Walk& walk);

  const GangPtr gang_;
  const int chunks_;
  std::vector<StyledModule> modules_;  // in the order of the tree
  std::vector<PlannedParameter> parameters_;
};

// Returns whether there are parameters below `root` and every one is split over tp, by a plan or by its own
// module.
bool is_tensor_parallel(const ModulePtr& root);

}  // namespace gangway
