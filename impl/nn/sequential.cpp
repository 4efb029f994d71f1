#include "nn/chain.h"
#include "nn/layers.h"

namespace gangway {
namespace {

class Sequential final : public Module {
 public:
  explicit Sequential(std::vector<ModulePtr> modules) {
    if (modules.empty()) fail(Code::invalid_argument, "Sequential: no modules were given");
    for (size_t i = 0; i < modules.size(); ++i) {
      if (!modules[i]) fail(Code::invalid_argument, "Sequential: module ", i, " is null");
      add_child(std::to_string(i), std::move(modules[i]));
    }
  }

  const char* kind() const override { return "Sequential"; }
  size_t output_count(size_t) const override { return child(children().size() - 1).output_count(1); }

  std::vector<IdRule> id_rules() const override { return child(0).id_rules(); }

  // All but the last are a chain; the last may have more outputs and hands them out as they are.
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    check_count(inputs.size());
    return chain_check(ctx, *this, 0, children().size(), {inputs[0]});
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    check_count(inputs.size());
    const size_t last = children().size() - 1;
    const Tensor x = chain_forward(ctx, *this, 0, last, inputs[0], frame);
    return child(last).forward(ctx, std::span<const Tensor>(&x, 1), frame);
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const size_t last = children().size() - 1;
    const Stack::Mark mark = frame.mark();
    const Tensor dx = frame.compact(ctx, mark, child(last).backward(ctx, dy, frame).at(0));
    return {chain_backward(ctx, *this, 0, last, dx, frame, mark)};
  }

 private:
  void check_count(size_t inputs) const {
    if (inputs != 1)
      fail(Code::invalid_argument, "Sequential ", full_name(), ": takes 1 input, got ", inputs);
  }
};

}  // namespace

ModulePtr make_sequential(std::vector<ModulePtr> modules) {
  return std::make_shared<Sequential>(std::move(modules));
}

}  // namespace gangway
