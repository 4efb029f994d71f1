#include "train/module_outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gang/agreement.h"
#include "nn/chain.h"
#include "nn/custom.h"
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

// Returns whether only the module itself runs its children, each by its forward.
bool runs_children(const Module& module) {
  return module.is_block() || dynamic_cast<const Chain*>(&module) != nullptr ||
         dynamic_cast<const Custom*>(&module) != nullptr;
}

// Puts wrappers around the first `count` children, and around what all children run themselves.
void observe_inside(Module& module, size_t count, ModuleOutputs& outputs) {
  for (size_t i = 0; i < module.children().size(); ++i) {
    Module& inner = unwrapped(*module.children()[i].module);
    if (runs_children(inner)) observe_inside(inner, inner.children().size(), outputs);
    if (i < count) module.set_child(i, std::make_shared<Observed>(module.children()[i].module, outputs));
  }
}

std::string name_of(const Module& module) {
  return module.full_name().empty() ? module.kind() : module.full_name();
}

}  // namespace

void observe_outputs(Module& root, ModuleOutputs& outputs) {
  Module& whole = unwrapped(root);
  const size_t count = whole.children().size();
  if (count == 0 || !runs_children(whole)) return;
  const bool is_chain = dynamic_cast<const Chain*>(&whole) != nullptr;
  outputs.last = name_of(is_chain ? unwrapped(*whole.children().back().module) : whole);
  observe_inside(whole, is_chain ? count - 1 : count, outputs);
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

std::string first_not_finite(Gangs& gangs, const ModuleOutputs& outputs) {
  const auto found = std::find_if(outputs.order.begin(), outputs.order.end(), [&](const std::string& name) {
    return !std::isfinite(outputs.sizes.at(name).squares);
  });
  const std::string own = found == outputs.order.end() ? std::string() : *found;
  const std::vector<std::string> all = gangs.root()->agreement().all_gather_bytes(Channel::control, own);
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) return text("that of ", all[r], " on rank ", r);
  return {};
}

}  // namespace gangway
