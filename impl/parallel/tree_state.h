// A snapshot of everything that wrapping changes in a module tree, so that a refused call can undo it: the
// children of every module, the layouts of the parameters, the losses of the heads, and what norms, dropouts
// and linear layers know of the parts that a rank has.
//
// Thread rule: one thread at a time.
#pragma once

#include <functional>
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
  void add_parts(Module& module);

  ModulePtr root_;
  std::vector<Children> modules_;
  std::vector<std::function<void()>> undo_;  // gives modules of modules_ back what they knew of parts
  std::vector<Placed> parameters_;
};

}  // namespace gangway
