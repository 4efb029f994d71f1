#include <algorithm>

#include "nn/chain.h"
#include "nn/layers.h"

namespace gangway {
namespace {

class Sequential final : public Chain {
 public:
  explicit Sequential(std::vector<ModulePtr> modules) {
    if (modules.empty()) fail(Code::invalid_argument, "Sequential: no modules were given");
    for (size_t i = 0; i < modules.size(); ++i) {
      if (!modules[i]) fail(Code::invalid_argument, "Sequential: module ", i, " is null");
      add_child(std::to_string(i), std::move(modules[i]));
    }
  }

  const char* kind() const override { return "Sequential"; }

  std::vector<IdRule> id_rules() const override {
    std::vector<IdRule> rules = child(0).id_rules();
    const std::vector<IdRule> of_last = child(last()).id_rules();
    if (last() == 0 || of_last.size() < 2) return rules;
    rules.resize(1);
    rules.insert(rules.end(), of_last.begin() + 1, of_last.end());
    return rules;
  }

  void check_inputs(std::span<const Spec> inputs) const override {
    const size_t most = std::max(child(last()).gradient_count(), child(last()).id_rules().size());
    if (inputs.size() != 1 && inputs.size() != most)
      fail(Code::invalid_argument, "Sequential ", full_name(), ": takes ", most,
           most == 1 ? " input" : " inputs (the last module all but the first)", ", got ", inputs.size());
  }
};

}  // namespace

ModulePtr make_sequential(std::vector<ModulePtr> modules) {
  return std::make_shared<Sequential>(std::move(modules));
}

}  // namespace gangway
