#include "nn/module.h"

#include <algorithm>
#include <set>

#include "base/philox.h"

namespace gangway {
namespace {

std::string join(const std::string& path, const std::string& name) {
  if (path.empty() || name.empty()) return path.empty() ? name : path;
  return path + "." + name;
}

void collect(const Module& module, const std::string& path, std::vector<NamedParameter>& out) {
  for (const ParameterPtr& p : module.parameters()) out.push_back({join(path, p->name), p});
  for (const Module::Child& child : module.children()) collect(*child.module, join(path, child.name), out);
}

void collect(const ModulePtr& module, const std::string& path, std::vector<NamedModule>& out) {
  for (size_t i = 0; i < module->children().size(); ++i) {
    const Module::Child& child = module->children()[i];
    const std::string below = join(path, child.name);
    out.push_back({below, module.get(), i, child.module});
    collect(child.module, below, out);
  }
}

void assign(Module& module, const std::string& path, std::set<const Parameter*>& seen) {
  module.set_full_name(path);
  for (const ParameterPtr& p : module.parameters())
    if (seen.insert(p.get()).second) p->full_name = join(path, p->name);
  for (const Module::Child& child : module.children()) assign(*child.module, join(path, child.name), seen);
}

std::string first_values(const Init& init) {
  switch (init.kind) {
    case Init::Kind::zeros: return "zeros";
    case Init::Kind::ones: return "ones";
    case Init::Kind::normal: return "normal";
    case Init::Kind::fill: return "by the caller";
  }
  fail(Code::internal, "init ", static_cast<int>(init.kind), " is unknown (0 to 3)");
}

void add_to_signature(const Parameter& p, const std::string& full_name, CallSignature& signature) {
  signature.add(p.name, text(name(p.dtype), " ", p.shape.text(), p.trainable ? "" : " frozen",
                             p.kind == Parameter::Kind::buffer ? " buffer" : "",
                             p.full_name == full_name ? "" : " tied to " + p.full_name));
  signature.add(p.name + " first values", first_values(p.init));
  if (p.init.kind == Init::Kind::normal) signature.add(p.name + " deviation", p.init.deviation);
  for (const Placement& placement : p.layout)
    if (!placement.at_rest) signature.add(p.name + " layout", describe({placement}));
  if (!p.grad_partial_axes.empty()) signature.add(p.name + " partial over", p.grad_partial_axes);
}

}  // namespace

std::string Spec::text() const { return name(dtype) + " " + shape.text(); }

Spec spec_of(const Tensor& tensor) { return tensor ? Spec{tensor.dtype(), tensor.shape()} : Spec{}; }

Specs specs_of(std::span<const Tensor> tensors) {
  Specs specs;
  for (const Tensor& tensor : tensors) specs.push_back(spec_of(tensor));
  return specs;
}

Specs Module::check_forward(Context&, std::span<const Spec>) { return {}; }

void Module::add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) {
  const Stack::Mark mark = frame.mark();
  frame.add_gradient(ctx, dx, backward(ctx, {&dy, 1}, frame).at(0), mark);
}

void Module::backward_weight(Context&, Frame&, int index, const Tensor&) {
  fail(Code::internal, kind(), " has no weight task ", index);
}

Tensor Module::recompute(Context&, Frame&, int index) {
  fail(Code::internal, kind(), " cannot make output ", index, " again");
}

void Module::add_child(std::string name, std::shared_ptr<Module> module) {
  children_.push_back({std::move(name), std::move(module)});
}

ParameterPtr Module::add_parameter(std::string name, const Shape& shape, Init init) {
  return parameters_.emplace_back(std::make_shared<Parameter>(std::move(name), shape, std::move(init)));
}

Tensor make_output(Context& ctx, Frame* frame, DType dtype, const Shape& shape) {
  return frame != nullptr ? frame->allocate(dtype, shape) : ctx.temporaries.allocate(dtype, shape);
}

std::vector<DType> dtypes_of(std::span<const Tensor> values) {
  std::vector<DType> dtypes;
  for (const Tensor& value : values) dtypes.push_back(value ? value.dtype() : DType{});
  return dtypes;
}

std::vector<NamedParameter> named_parameters(const Module& root) {
  std::vector<NamedParameter> all = named_parameters_with_aliases(root);
  std::set<const Parameter*> seen;
  std::erase_if(all, [&](const NamedParameter& p) { return !seen.insert(p.parameter.get()).second; });
  return all;
}

std::vector<NamedParameter> named_parameters_with_aliases(const Module& root) {
  std::vector<NamedParameter> all;
  collect(root, "", all);
  return all;
}

std::vector<NamedModule> named_modules(const ModulePtr& root) {
  std::vector<NamedModule> all{{"", nullptr, 0, root}};
  collect(root, "", all);
  return all;
}

void add_to_signature(const ModulePtr& root, CallSignature& signature) {
  for (const NamedModule& named : named_modules(root)) {
    const Module& module = *named.module;
    signature.set_scope(named.path);
    signature.add("kind", module.kind());
    module.add_options(signature);
    for (const ParameterPtr& p : module.parameters())
      add_to_signature(*p, join(named.path, p->name), signature);
  }
  signature.set_scope("");
}

void assign_full_names(Module& root) {
  std::set<const Parameter*> seen;
  assign(root, "", seen);
}

const Module* first_reader(const Module& module) {
  const std::optional<DataFlow> flow = module.data_flow();
  const bool reads = flow && !flow->steps.empty() && flow->steps[0].reads.at(0) == DataFlow::kInput;
  return reads ? &module.child(flow->steps[0].child) : nullptr;
}

Module& unwrapped(Module& module) {
  Module* inner = &module;
  while (inner->is_wrapper()) inner = &inner->child(0);
  return *inner;
}

const Module& unwrapped(const Module& module) {
  const Module* inner = &module;
  while (inner->is_wrapper()) inner = &inner->child(0);
  return *inner;
}

namespace {

uint64_t low64(const PhiloxBlock& b) { return static_cast<uint64_t>(b[1]) << 32 | b[0]; }

}  // namespace

uint64_t step_seed(const Context& ctx, std::string_view module_name) {
  return low64(philox(philox_key(ctx.seed, module_name), static_cast<uint64_t>(ctx.step)));
}

uint64_t call_seed(const Context& ctx, std::string_view module_name) {
  const uint64_t place = static_cast<uint64_t>(ctx.data_index) << 32 |
                         static_cast<uint64_t>(static_cast<uint32_t>(ctx.microbatch));
  return low64(philox(step_seed(ctx, module_name), place));
}

// Position i of the pattern is `reached` if its first i characters match the path up to here. All positions
// move on together, so that the worst case is O(pattern * path), however many stars there are.
bool path_matches(std::string_view pattern, std::string_view path) {
  const size_t end = pattern.size();
  const auto is_star = [&](size_t i) { return i < end && pattern[i] == '*'; };
  // The first star of a `**` stands for nothing, and the others for any characters.
  const auto spans_dots = [&](size_t i) { return is_star(i) && i > 0 && is_star(i - 1); };
  // `**.` at the start of a component may be left out as a whole.
  const auto is_optional = [&](size_t i) {
    return is_star(i) && is_star(i + 1) && i + 2 < end && pattern[i + 2] == '.' &&
           (i == 0 || pattern[i - 1] == '.');
  };
  std::vector<char> reached(end + 1), next(end + 1);
  reached[0] = 1;
  for (size_t t = 0;; ++t) {
    for (size_t i = 0; i < end; ++i) {
      if (!reached[i] || !is_star(i)) continue;
      reached[i + 1] = 1;
      if (is_optional(i)) reached[i + 3] = 1;
    }
    if (t == path.size()) return reached[end] != 0;
    std::fill(next.begin(), next.end(), 0);
    bool any = false;
    for (size_t i = 0; i < end; ++i) {
      if (!reached[i]) continue;
      const bool stays = spans_dots(i) || (is_star(i) && !is_star(i + 1) && path[t] != '.');
      const bool moves = !is_star(i) && pattern[i] == path[t];
      if (stays) next[i] = 1;
      if (moves) next[i + 1] = 1;
      any = any || stays || moves;
    }
    if (!any) return false;
    reached.swap(next);
  }
}

}  // namespace gangway
