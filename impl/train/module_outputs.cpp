#include "train/module_outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gang/agreement.h"
#include "nn/chain.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

class Observed final : public Module {
 public:
  Observed(ModulePtr inner, ModuleOutputs& outputs) : outputs_(outputs) { add_child("", std::move(inner)); }

  const char* kind() const override { return "Observed"; }
  bool is_wrapper() const override { return true; }
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    return child(0).check_forward(ctx, inputs);
  }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    Values y = child(0).forward(ctx, inputs, frame);
    if (ctx.training && !ctx.recomputing) record(y.at(0), ctx.stream);
    return y;
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    return child(0).backward(ctx, dy, frame);
  }

 private:
  void record(const Tensor& y, Stream& stream) {
    if (y.dtype() != DType::f64 || !y.contiguous()) return;
    const std::string& name = unwrapped(*this).full_name();
    const auto [size, is_new] = outputs_.sizes.try_emplace(name);
    if (is_new) outputs_.order.push_back(name);
    const HostView<double> host(y, stream);
    size->second.count += static_cast<double>(y.count());
    for (const double x : host) size->second.squares += x * x;
  }

  ModuleOutputs& outputs_;
};

void observe_children(Module& module, size_t count, ModuleOutputs& outputs) {
  for (size_t i = 0; i < count; ++i)
    module.set_child(i, std::make_shared<Observed>(module.children()[i].module, outputs));
}

}  // namespace

void observe_outputs(Module& root, ModuleOutputs& outputs) {
  auto* const chain = dynamic_cast<Chain*>(&unwrapped(root));
  if (chain == nullptr || chain->children().empty()) return;
  for (const Module::Child& child : chain->children())
    if (Module& inner = unwrapped(*child.module); inner.is_block())
      observe_children(inner, inner.children().size(), outputs);
  const Module& last = unwrapped(*chain->children().back().module);
  outputs.last = last.full_name().empty() ? last.kind() : last.full_name();
  observe_children(*chain, chain->children().size() - 1, outputs);
}

std::map<std::string, OutputSize> summed_over_ranks(Gangs& gangs, const ModuleOutputs& outputs) {
  std::string own;
  for (const auto& [name, size] : outputs.sizes) {
    own.append(reinterpret_cast<const char*>(&size), sizeof size);
    own.append(name.c_str(), name.size() + 1);
  }
  std::map<std::string, OutputSize> sums;
  for (const std::string& all : gangs.root()->agreement().all_gather_bytes(Channel::control, own))
    for (size_t at = 0; at < all.size();) {
      OutputSize size;
      std::memcpy(&size, all.data() + at, sizeof size);
      const std::string name = all.c_str() + at + sizeof size;
      at += sizeof size + name.size() + 1;
      sums[name].count += size.count;
      sums[name].squares += size.squares;
    }
  return sums;
}

std::string first_that_differs(const ModuleOutputs& alone, const std::map<std::string, OutputSize>& mesh,
                               double tolerance) {
  bool knows_all = !alone.order.empty();
  for (const std::string& name : alone.order) {
    const OutputSize& own = alone.sizes.at(name);
    const auto found = mesh.find(name);
    const double times = found == mesh.end() || own.count == 0 ? 0 : found->second.count / own.count;
    if (times < 1 || times != std::floor(times)) {  // a part of it is elsewhere, or padding is added
      knows_all = false;
      continue;
    }
    const double squares = found->second.squares / times;
    if (std::fabs(squares - own.squares) > tolerance * std::max(squares, own.squares)) return name;
  }
  return knows_all ? alone.last : std::string();
}

}  // namespace gangway
