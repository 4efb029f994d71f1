#include "parallel/tree_state.h"

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
  if (const auto* linear = dynamic_cast<const Linear*>(module.get());
      linear != nullptr && linear->fp8() != nullptr)
    products_.push_back({linear->fp8(), linear->fp8()->split()});
  for (const Module::Child& child : module->children()) add(child.module);
}

void TreeState::restore(ModulePtr& root) const {
  for (const Children& entry : modules_) {
    for (size_t i = 0; i < entry.children.size(); ++i) entry.module->set_child(i, entry.children[i]);
    if (entry.loss != nullptr) dynamic_cast<LmHead&>(*entry.module).set_loss(entry.loss);
  }
  for (const SplitProducts& entry : products_) entry.products->set_split(entry.split);
  for (const Placed& placed : parameters_) {
    placed.parameter->layout = placed.layout;
    placed.parameter->grad_partial_axes = placed.grad_partial_axes;
  }
  root = root_;
}

}  // namespace gangway
