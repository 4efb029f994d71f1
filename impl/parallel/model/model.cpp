#include "parallel/model/model.h"

#include <map>
#include <string>

#include "parallel/pipeline/runtime.h"

namespace gangway {
namespace {

std::shared_ptr<Gangs> or_alone(std::shared_ptr<Gangs> gangs) {
  if (gangs != nullptr) return gangs;
  GangOptions options;
  options.rank = 0;
  options.size = 1;
  return create_gangs(Gang::create(options), MeshOptions{});
}

// Two parameters must not have one name, because files and look-ups identify parameters by name.
void check_names(const Module& root) {
  std::map<std::string, const Parameter*> seen;
  for (const NamedParameter& p : named_parameters_with_aliases(root)) {
    const auto [at, fresh] = seen.emplace(p.name, p.parameter.get());
    if (!fresh && at->second != p.parameter.get())
      fail(Code::invalid_argument, "two parameters have the name ", p.name, ", one ",
           at->second->shape.text(), ", one ", p.parameter->shape.text(),
           "; names of modules and parameters, joined by dots, must differ");
  }
}

}  // namespace

ModelParts::ModelParts(ModulePtr module, std::shared_ptr<Gangs> given)
    : root(std::move(module)),
      gangs(or_alone(std::move(given))),
      ops(make_ops(gangs->root()->owner()->device_ptr())),
      memory(gangs->tp()->size() > 1 ? gangs->tp()->allocator() : gangs->root()->device().allocator()),
      temporaries(memory),
      fsdp(std::make_shared<FsdpState>(gangs, *ops)) {
  assign_full_names(*root);
  check_names(*root);
}

ModelParts::~ModelParts() = default;

void ModelParts::check_materialized(const char* call) const {
  if (!materialized)
    fail(Code::invalid_state, call, ": the model has no values yet; materialize comes first");
}

Frame& Model::frame(size_t index) {
  while (parts_.frames.size() <= index) parts_.frames.push_back(std::make_unique<Frame>(parts_.memory));
  return *parts_.frames[index];
}

}  // namespace gangway
