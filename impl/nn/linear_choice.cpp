#include "nn/linear_choice.h"

namespace gangway {
namespace {

// Why a module is not chosen, as the end of a text that names the module; empty: it is.
std::string obstacle(const NamedModule& named, const LinearUse& use) {
  if (dynamic_cast<const Linear*>(named.module.get()) == nullptr)
    return text(", a ", named.module->kind(), "; only a Linear ", use.has);
  if (named.parent != nullptr && named.parent->reads_child_parameters())
    return text(", whose weight its ", named.parent->kind(), " reads directly; it cannot ", use.have);
  return {};
}

// Adds the layers that `pattern` selects to `chosen`, by their paths.
void select(const std::vector<NamedModule>& all, const std::string& pattern, const LinearUse& use,
            std::map<std::string, Linear*>& chosen) {
  std::string why;
  bool found = false;
  for (const NamedModule& named : all) {
    if (!path_matches(pattern, named.path)) continue;
    const std::string refusal = obstacle(named, use);
    if (refusal.empty()) {
      chosen.emplace(named.path, dynamic_cast<Linear*>(named.module.get()));
      found = true;
    } else if (why.empty()) {
      why = named.path + refusal;
    }
  }
  if (found) return;
  if (!why.empty()) fail(Code::invalid_argument, use.call, ": pattern \"", pattern, "\" matches ", why);
  fail(Code::not_found, use.call, ": no module matches \"", pattern,
       "\"; a pattern stands for the whole path, as **.q_proj");
}

}  // namespace

std::map<std::string, Linear*> chosen_linears(const ModulePtr& root, const std::vector<std::string>& patterns,
                                              const LinearUse& use) {
  const std::vector<NamedModule> all = named_modules(root);
  const std::vector<std::string> every = {"**"};
  std::map<std::string, Linear*> chosen;
  for (const std::string& pattern : patterns.empty() ? every : patterns) select(all, pattern, use, chosen);
  return chosen;
}

}  // namespace gangway
