#include "parallel/tree_state.h"

#include "nn/linear.h"
#include "nn/rmsnorm.h"

namespace gangway {

TreeState::TreeState(const ModulePtr& root) : root_(root) {
  add(root);
  for (const NamedParameter& p : named_parameters(*root))
    parameters_.push_back({p.parameter, p.parameter->layout, p.parameter->grad_partial_axes});
}

void TreeState::add(const ModulePtr& module) {
  const auto* head = dynamic_cast<const LmHead*>(module.get());
  Children entry{module, {}, head == nullptr ? nullptr : head->loss()};
  for (const Module::Child& child : module->children()) entry.children.push_back(child.module);
  modules_.push_back(std::move(entry));
  add_parts(*module);
  for (const Module::Child& child : module->children()) add(child.module);
}

void TreeState::add_parts(Module& module) {
  if (auto* const norm = dynamic_cast<RmsNorm*>(&module))
    undo_.push_back([norm, sums = norm->row_sums()] { norm->set_row_sums(sums); });
  if (auto* const dropout = dynamic_cast<Dropout*>(&module))
    undo_.push_back([dropout, part = dropout->part()] { dropout->set_part(part); });
  auto* const linear = dynamic_cast<Linear*>(&module);
  if (linear == nullptr) return;
  undo_.push_back([linear, part = linear->input_part()] { linear->set_input_part(part); });
  if (Fp8Products* const fp8 = linear->fp8())
    undo_.push_back([fp8, split = fp8->split()] { fp8->set_split(split); });
}

void TreeState::restore(ModulePtr& root) const {
  for (const Children& entry : modules_) {
    for (size_t i = 0; i < entry.children.size(); ++i) entry.module->set_child(i, entry.children[i]);
    if (entry.loss != nullptr) dynamic_cast<LmHead&>(*entry.module).set_loss(entry.loss);
  }
  for (const auto& undo : undo_) undo();
  for (const Placed& placed : parameters_) {
    placed.parameter->layout = placed.layout;
    placed.parameter->grad_partial_axes = placed.grad_partial_axes;
  }
  root = root_;
}

}  // namespace gangway
