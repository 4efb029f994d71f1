// Ranges of a chain, as stages of a pipeline run them: several frames alive, weight halves later.
#include "nn/chain.h"

#include "nn/loss.h"
#include "nn/nn_testing.h"
#include "nn/small_llama.h"

namespace gangway {
namespace {

using namespace nn_testing;

constexpr int kMicrobatches = 3;

struct Staged {
  Staged() : model(make_decoder(test::small_llama())), chain(dynamic_cast<Chain&>(*model)) {
    rig.materialize(*model, DType::f64);
    for (uint32_t m = 0; m < kMicrobatches; ++m) {
      tokens.push_back(rig.ids({2, 5}, 10 + m, 17));
      labels.push_back(rig.ids({2, 5}, 20 + m, 17));
    }
  }
  Context context(bool defer = false) {
    Context ctx = rig.context();
    ctx.training = true;
    ctx.loss_scale = 0.25;
    ctx.defer_weight = defer;
    return ctx;
  }
  std::vector<Vector> gradients() const {
    std::vector<Vector> out;
    for (const NamedParameter& p : named_parameters(*model)) out.push_back(get(p.parameter->grad->tensor));
    return out;
  }

  Rig rig;
  ModulePtr model;
  Chain& chain;
  Values tokens, labels;
};

struct Result {
  std::vector<Vector> gradients;
  std::vector<double> losses;
  bool operator==(const Result&) const = default;
};

// One microbatch after the other, the model whole.
Result whole() {
  Staged s;
  Result result;
  Frame frame(s.rig.device->allocator());
  for (size_t m = 0; m < kMicrobatches; ++m) {
    Context ctx = s.context();
    const Tensor inputs[] = {s.tokens[m], s.labels[m]};
    result.losses.push_back(get(s.model->forward(ctx, inputs, &frame)[0])[0]);
    s.model->backward(ctx, {}, frame);
    frame.run_weight_gradients(ctx);
    frame.reset();
  }
  result.gradients = s.gradients();
  return result;
}

// All forwards, then all input halves, the last microbatch first, then the weight halves in order; or the halves together.
// Each stage of each microbatch has a frame, and what travels lies in memory of its own.
Result in_stages(size_t cut, bool defer, Recompute recompute) {
  Staged s;
  Result result;
  std::vector<std::unique_ptr<Frame>> frames;
  for (size_t i = 0; i < 2 * kMicrobatches; ++i)
    frames.push_back(std::make_unique<Frame>(s.rig.device->allocator()));
  const size_t end = s.chain.children().size();
  for (size_t m = 0; m < kMicrobatches; ++m) {
    Context ctx = s.context(defer);
    frames[2 * m]->recompute = frames[2 * m + 1]->recompute = recompute;
    const Tensor y = s.chain.forward_range(ctx, 0, cut, {&s.tokens[m], 1}, frames[2 * m].get())[0];
    const Tensor x[] = {s.rig.copy(y), s.labels[m]};
    result.losses.push_back(get(s.chain.forward_range(ctx, cut, end, x, frames[2 * m + 1].get())[0])[0]);
  }
  for (size_t i = 0; i < kMicrobatches; ++i) {
    const size_t m = defer ? kMicrobatches - 1 - i : i;
    Context ctx = s.context(defer);
    const Tensor dx = s.rig.copy(s.chain.backward_range(ctx, cut, end, {}, *frames[2 * m + 1]));
    s.chain.backward_range(ctx, 0, cut, {&dx, 1}, *frames[2 * m]);
  }
  for (const size_t stage : {1, 0})
    for (size_t m = 0; m < kMicrobatches; ++m) {
      Context ctx = s.context();
      frames[2 * m + stage]->run_weight_gradients(ctx);
    }
  result.gradients = s.gradients();
  return result;
}

TEST(Chain, RangesGiveTheBitsOfTheWhole) {
  const Result want = whole();
  for (size_t cut = 1; cut < 4; ++cut)
    for (const Recompute recompute : {Recompute::none, Recompute::selective})
      EXPECT_EQ(in_stages(cut, false, recompute), want) << cut;
}

// Backward writes over activations of its own frame only. (Norms and the head sum their gradients in the input half, which
// comes in another order here.)
TEST(Chain, DeferredHalvesOfFramesInFlightGiveTheGradientsOfTheWhole) {
  const Result want = whole();
  for (size_t cut = 1; cut < 4; ++cut)
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
      const Result got = in_stages(cut, true, recompute);
      EXPECT_EQ(got.losses, want.losses);
      for (size_t i = 0; i < want.gradients.size(); ++i)
        EXPECT_LE(normwise(got.gradients[i], want.gradients[i]), 1e-14) << cut << ", parameter " << i;
    }
}

TEST(Chain, ASequentialGivesFurtherInputsToItsLastModule) {
  Rig rig;
  const DecoderOptions c = test::small_llama();
  const ModulePtr model = make_sequential({make_embedding(c.vocab, c.dim), make_linear(c.dim, c.dim, false),
                                           make_head(c.dim, c.vocab, c.eps, c.deviation)});
  rig.materialize(*model, DType::f64);
  const Tensor inputs[] = {rig.ids({2, 5}, 1, 17), rig.ids({2, 5}, 2, 17)};
  Context ctx = rig.context();
  ctx.training = true;
  Frame frame(rig.device->allocator());
  EXPECT_EQ(get(model->forward(ctx, inputs, &frame)[1]), Vector{10});
  EXPECT_EQ(model->id_rules().size(), 2u);
  const Tensor three[] = {inputs[0], inputs[1], inputs[1]};
  EXPECT_THROW(model->forward(ctx, three, nullptr), Error);
}

}  // namespace
}  // namespace gangway
