#include "nn/ids.h"

#include <tuple>

#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;

DecoderOptions tiny(bool tied = false) {
  DecoderOptions c;
  c.vocab = 11;
  c.dim = 6;
  c.layers = 2;
  c.heads = 3;
  c.kv_heads = 1;
  c.head_dim = 4;
  c.ffn = 5;
  c.qkv_bias = c.out_bias = c.mlp_bias = true;
  c.tied = tied;
  c.max_positions = 16;
  return c;
}

// A model, a batch and what one step leaves behind.
struct Step {
  explicit Step(const DecoderOptions& config, DType dtype = DType::f64, int64_t batch = 2,
                int64_t sequence = 5)
      : model(make_decoder(config)) {
    rig.materialize(*model, dtype);
    tokens = rig.ids({batch, sequence}, 1, config.vocab);
    labels = rig.ids({batch, sequence}, 2, config.vocab);
    Vector some = get(labels);
    some[1] = -100;
    put(labels, some);
  }
  Context context() {
    Context ctx = rig.context();
    ctx.training = true;
    ctx.loss_scale = scale;
    return ctx;
  }
  Values inputs() const { return {tokens, labels}; }

  double evaluate() {
    StackScope scope(rig.temporaries);
    Context ctx = rig.context();
    return get(model->forward(ctx, inputs(), nullptr)[0])[0];
  }
  // Loss and weight; gradients are in the parameters.
  Values train(Frame& frame, bool defer = false) {
    Context ctx = context();
    ctx.defer_weight = defer;
    const Values out = model->forward(ctx, inputs(), &frame);
    EXPECT_EQ(rig.temporaries.used_bytes(), 0u) << "a frame's forward leaves no temporaries";
    model->backward(ctx, {}, frame);
    frame.run_weight_gradients(ctx);
    EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
    return out;
  }
  std::vector<Vector> gradients() const {
    std::vector<Vector> out;
    for (const NamedParameter& p : named_parameters(*model)) out.push_back(get(p.parameter->grad->tensor));
    return out;
  }

  Rig rig;
  ModulePtr model;
  Tensor tokens, labels;
  double scale = 0.25;
};

TEST(Llama, GradientsAgreeWithDifferences) {
  for (bool tied : {false, true}) {
    Step step(tiny(tied));
    Frame frame(step.rig.device->allocator());
    const Values out = step.train(frame);
    EXPECT_NEAR(get(out[0])[0], step.evaluate(), 1e-12) << "the loss is the plain sum, not times its scale";
    EXPECT_EQ(get(out[1])[0], 9);
    for (const NamedParameter& p : named_parameters(*step.model)) {
      Vector numeric = numeric_gradient(p.parameter->value, [&] { return step.evaluate(); });
      for (double& g : numeric) g *= 0.25;
      EXPECT_LE(normwise(get(p.parameter->grad->tensor), numeric), 1e-7) << p.name;
    }
  }
}

TEST(Llama, SelectiveRecomputationGivesTheSameBits) {
  for (DType dtype : {DType::f64, DType::f32}) {
    std::vector<std::vector<Vector>> results;
    for (Recompute recompute : {Recompute::none, Recompute::selective}) {
      Step step(tiny(), dtype);
      Frame frame(step.rig.device->allocator());
      frame.recompute = recompute;
      const Values out = step.train(frame);
      results.push_back(step.gradients());
      results.back().push_back(get(out[0]));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(Llama, DeferredWeightHalvesGiveTheSameBits) {
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    std::vector<std::vector<Vector>> results;
    for (bool defer : {false, true}) {
      Step step(tiny(true));
      Frame frame(step.rig.device->allocator());
      frame.recompute = recompute;
      step.train(frame, defer);
      results.push_back(step.gradients());
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(Llama, AFusedLossIsMadeByBackwardWithTheSameBits) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
    std::vector<std::vector<Vector>> results;
    for (const bool fused : {false, true}) {
      Step step(tiny(true));
      Frame frame(step.rig.device->allocator());
      frame.recompute = recompute;
      Context ctx = step.context();
      ctx.fused_loss = fused;
      const Values out = step.model->forward(ctx, step.inputs(), &frame);
      EXPECT_EQ(get(out[0])[0] == 0, fused) << "not yet";
      step.model->backward(ctx, {}, frame);
      results.push_back(step.gradients());
      results.back().push_back(get(out[0]));
      results.back().push_back(get(out[1]));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[1].back(), Vector{9});
  }
}

TEST(Llama, WeightHalfNeedsNoWeights) {
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    Step step(tiny());
    Context ctx = step.context();
    ctx.defer_weight = true;
    Frame frame(step.rig.device->allocator());
    frame.recompute = recompute;
    step.model->forward(ctx, step.inputs(), &frame);
    step.model->backward(ctx, {}, frame);
    EXPECT_EQ(frame.pending_weight(), 2u * 7 + 1);
    for (const NamedParameter& p : named_parameters(*step.model)) p.parameter->value = Tensor();
    frame.run_weight_gradients(ctx);
  }
}

TEST(Llama, InferenceEqualsTrainingForward) {
  Step step(tiny(), DType::f32);
  Frame frame(step.rig.device->allocator());
  Context ctx = step.context();
  const double trained = get(step.model->forward(ctx, step.inputs(), &frame)[0])[0];
  EXPECT_EQ(trained, step.evaluate());
  const Tensor logits = step.model->forward(ctx, std::span<const Tensor>(&step.tokens, 1), nullptr)[0];
  EXPECT_EQ(logits.shape(), (Shape{2, 5, 11}));
  const Vector x = get(logits), labels = get(step.labels);
  double loss = 0;
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] < 0) continue;
    double sum = 0;
    for (size_t v = 0; v < 11; ++v) sum += std::exp(x[t * 11 + v]);
    loss += std::log(sum) - x[t * 11 + static_cast<size_t>(labels[t])];
  }
  EXPECT_NEAR(loss, trained, 1e-4);
}

TEST(Llama, InferenceMemoryDoesNotGrowWithLayers) {
  size_t high[2];
  for (int layers : {1, 6}) {
    DecoderOptions c = tiny();
    c.layers = layers;
    Step step(c);
    step.evaluate();
    high[layers == 6] = step.rig.temporaries.high_water_bytes();
  }
  EXPECT_EQ(high[0], high[1]);
}

TEST(Llama, GradientMemoryDoesNotGrowWithLayers) {
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    size_t high[2];
    for (int layers : {1, 6}) {
      DecoderOptions c = tiny();
      c.layers = layers;
      Step step(c);
      Frame frame(step.rig.device->allocator());
      frame.recompute = recompute;
      step.train(frame);
      high[layers == 6] = frame.gradient_bytes();
    }
    EXPECT_EQ(high[0], high[1]);
  }
}

TEST(Llama, SavedBytesOfABlockFollowTheFormula) {
  // Sizes whose tensors are multiples of 64 bytes.
  AttentionOptions o;
  o.dim = 32;
  o.heads = 4;
  o.kv_heads = 2;
  o.head_dim = 16;
  constexpr size_t kT = 2 * 16, kD = 32, kH = 4, kG = 2, kK = 16, kF = 48;
  for (const auto& [dtype, e, s] : {std::tuple<DType, size_t, size_t>{DType::f32, 4, 4}, {DType::f64, 8, 8}})
    for (Recompute recompute : {Recompute::none, Recompute::selective})
      for (const char* device : {"cpu", "meta"}) {
        Rig rig(device);
        const ModulePtr block = make_block({o, kF});
        for (const NamedParameter& p : named_parameters(*block)) p.parameter->dtype = dtype;
        materialize(*block, *rig.ops, 3);
        Frame frame(rig.device->allocator());
        frame.recompute = recompute;
        Context ctx = rig.context();
        block->forward_one(ctx, rig.empty(dtype, {2, 16, kD}), &frame);
        const size_t statistics = s * kT * (2 + kH);
        EXPECT_EQ(frame.saved_bytes(), e * kT * (2 * kD + 2 * kH * kK + 2 * kG * kK + 2 * kF) + statistics);
      }
}

TEST(Llama, MetaTakesTheMemoryOfTheRun) {
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    size_t activations[2], gradients[2];
    for (bool meta : {false, true}) {
      Rig rig(meta ? "meta" : "cpu");
      const ModulePtr model = make_decoder(tiny());
      materialize(*model, *rig.ops, 3);
      Context ctx = rig.context();
      ctx.training = true;
      const Tensor tokens = rig.empty(DType::i64, {2, 7}), labels = rig.empty(DType::i64, {2, 7});
      if (!meta) {
        put(tokens, Vector(14, 3));
        put(labels, Vector(14, 4));
      }
      Frame frame(rig.device->allocator());
      frame.recompute = recompute;
      const Tensor both[] = {tokens, labels};
      model->forward(ctx, both, &frame);
      activations[meta] = frame.saved_bytes();
      model->backward(ctx, {}, frame);
      gradients[meta] = frame.gradient_bytes();
    }
    EXPECT_EQ(activations[0], activations[1]);
    EXPECT_EQ(gradients[0], gradients[1]);
  }
}

TEST(Llama, AllLabelsIgnoredGivesNoLossAndNoGradient) {
  Step step(tiny());
  put(step.labels, Vector(10, -100));
  step.scale = 0;
  Frame frame(step.rig.device->allocator());
  const Values out = step.train(frame);
  EXPECT_EQ(get(out[0])[0], 0);
  EXPECT_EQ(get(out[1])[0], 0);
  for (const Vector& g : step.gradients())
    for (double x : g) EXPECT_EQ(x, 0);
}

TEST(Llama, NoRowsGiveNoLossAndNoGradient) {
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    Step step(tiny(), DType::f64);
    step.tokens = step.labels = step.rig.empty(DType::i64, {0, 5});
    Frame frame(step.rig.device->allocator());
    frame.recompute = recompute;
    const Values out = step.train(frame);
    EXPECT_EQ(get(out[0])[0], 0);
    EXPECT_EQ(get(out[1])[0], 0);
    for (const Vector& g : step.gradients())
      for (double x : g) EXPECT_EQ(x, 0);
  }
}

TEST(Llama, FrozenModelStillGivesALoss) {
  Step step(tiny());
  for (const NamedParameter& p : named_parameters(*step.model)) {
    p.parameter->trainable = false;
    p.parameter->grad = nullptr;
  }
  Frame frame(step.rig.device->allocator());
  Context ctx = step.context();
  EXPECT_GT(get(step.model->forward(ctx, step.inputs(), &frame)[0])[0], 0);
  step.model->backward(ctx, {}, frame);
  EXPECT_EQ(frame.pending_weight(), 0u);
}

TEST(Llama, RefusesWhatItCannotRead) {
  Step step(tiny());
  Context ctx = step.context();
  const auto refused = [&](const Values& inputs, Frame* frame = nullptr) {
    return expect_error(Code::invalid_argument, [&] { step.model->forward(ctx, inputs, frame); });
  };
  Rig& rig = step.rig;
  expect_text(refused({rig.ids({1, 17}, 1, 11)}), {"17", "max_position_embeddings 16"});
  expect_text(refused({step.tokens, rig.ids({1, 5}, 1, 11)}), {"[1, 5]", "[2, 5]"});
  expect_text(refused({rig.normal({2, 5}, 1)}), {"f64 [2, 5]", "i64"});
  expect_text(refused({step.tokens, step.labels, step.labels}),
              {"the weights of tokens are i64", "f32 or f64"});
  expect_text(refused({rig.empty(DType::i64, {2, 0})}), {"[2, 0]"});
  Frame frame(rig.device->allocator());
  expect_text(refused({step.tokens}, &frame), {"logits"});
  DecoderOptions bad = tiny();
  bad.vocab = 0;
  expect_text(expect_error(Code::invalid_argument, [&] { make_decoder(bad); }), {"vocab is 0"});
}

TEST(Llama, IdsAndLabelsOutsideTheVocabularyAreRefusedWhereTheyAreTaken) {
  Step step(tiny());
  Context ctx = step.context();
  Rig& rig = step.rig;
  const auto refused = [&](const Values& inputs) {
    return expect_error(Code::invalid_argument, [&] { check_ids(ctx, step.model->id_rules(), inputs); });
  };
  expect_text(refused({rig.tensor(DType::i64, {1, 2}, {3, 11})}), {"token id 11", "vocabulary of 11"});
  expect_text(refused({step.tokens, rig.tensor(DType::i64, {2, 5}, Vector(10, 12))}),
              {"label 12", "vocabulary of 11"});
  expect_text(refused({step.tokens, rig.tensor(DType::i64, {2, 5}, Vector(10, -1))}),
              {"label -1", "vocabulary of 11"});
  const std::vector<IdRange> found = check_ids(ctx, step.model->id_rules(), step.inputs());
  EXPECT_EQ(found.at(0).count, 10);
  EXPECT_EQ(found.at(1).count, 9) << "without the one that is ignored";
  EXPECT_TRUE(check_ids(ctx, step.model->id_rules(), {}).empty());
}

TEST(Llama, FeedForwardWidthHasADefault) {
  DecoderOptions c = tiny();
  c.ffn = 0;
  c.dim = 256;
  EXPECT_EQ(decoder_options(*make_decoder(c))->ffn, 704);
}

}  // namespace
}  // namespace gangway
