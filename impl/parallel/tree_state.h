// A snapshot of everything that wrapping changes in a module tree, so that a refused call can undo it: the
// children of every module, the layouts of the parameters, the losses of the heads, and how products in FP8
// are split.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/linear.h"
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
  struct SplitProducts {
    Fp8Products* products;  // of a module that modules_ keeps
    Fp8Products::Split split;
  };
  struct Placed {
    ParameterPtr parameter;
    Layout layout;
    std::string grad_partial_axes;
  };
  void add(const ModulePtr& module);

  ModulePtr root_;
  std::vector<Children> modules_;
  std::vector<SplitProducts> products_;
  std::vector<Placed> parameters_;
};

}  // namespace gangway
