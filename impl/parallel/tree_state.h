// What wrapping changes of a tree, kept so that it can be undone: which module stands where, how parameters lie, how heads
// make their loss.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/loss.h"

namespace gangway {

class TreeState {
 public:
  explicit TreeState(const ModulePtr& root);
  void restore(ModulePtr& root) const;

 private:
  struct Children {
    ModulePtr module;
    std::vector<ModulePtr> children;
    std::shared_ptr<HeadLoss> loss;  // null: the module is no head
  };
  struct Placed {
    ParameterPtr parameter;
    Layout layout;
    std::string grad_partial_axes;
  };
  void add(const ModulePtr& module);

  ModulePtr root_;
  std::vector<Children> modules_;
  std::vector<Placed> parameters_;
};

}  // namespace gangway
