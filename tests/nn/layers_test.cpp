#include "nn/ids.h"

#include <tuple>

#include "nn/nn_testing.h"
#include "nn/rope_table.h"
#include "support/ops_interceptor.h"

namespace gangway {
namespace {

using namespace nn_testing;

TEST(Linear, GradientsAgreeWithDifferences) {
  Rig rig;
  for (bool bias : {false, true}) {
    const ModulePtr linear = make_linear(5, 3, bias);
    rig.materialize(*linear, DType::f64);
    expect_gradients(rig, *linear, {rig.normal({2, 3, 5}, 1)});
    rig.materialize(*linear, DType::f64);
    expect_gradients(rig, *linear, {rig.normal({1, 5}, 2)});
  }
  const ModulePtr thin = make_linear(1, 1, true);
  rig.materialize(*thin, DType::f64);
  expect_gradients(rig, *thin, {rig.normal({1, 1}, 3)});
}

TEST(Linear, SecondBackwardAddsToTheGradient) {
  Rig rig;
  const ModulePtr linear = make_linear(3, 2, true);
  rig.materialize(*linear, DType::f64);
  const Tensor x = rig.normal({4, 3}, 1), dy = rig.normal({4, 2}, 2);
  Context ctx = rig.context();
  const auto once = [&] {
    Frame frame(rig.device->allocator());
    linear->forward_one(ctx, x, &frame);
    linear->backward_one(ctx, dy, frame);
    frame.run_weight_gradients(ctx);
  };
  once();
  const Vector first = get(linear->parameters()[0]->grad->tensor),
               bias = get(linear->parameters()[1]->grad->tensor);
  once();
  const Vector twice = get(linear->parameters()[0]->grad->tensor),
               bias_twice = get(linear->parameters()[1]->grad->tensor);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * first[i]);
  for (size_t i = 0; i < bias.size(); ++i) EXPECT_DOUBLE_EQ(bias_twice[i], 2 * bias[i]);
}

TEST(Linear, FrozenWeightHasNoTask) {
  Rig rig;
  const ModulePtr linear = make_linear(3, 2, true);
  linear->parameters()[0]->trainable = false;
  linear->parameters()[1]->trainable = false;
  rig.materialize(*linear, DType::f64);
  EXPECT_FALSE(linear->parameters()[0]->grad);
  Context ctx = rig.context();
  Frame frame(rig.device->allocator());
  linear->forward_one(ctx, rig.normal({4, 3}, 1), &frame);
  EXPECT_EQ(linear->backward_one(ctx, rig.normal({4, 2}, 2), frame).shape(), (Shape{4, 3}));
  EXPECT_EQ(frame.pending_weight(), 0u);
}

TEST(Linear, RefusesAnotherWidthAndMissingStorage) {
  Rig rig;
  const ModulePtr linear = make_linear(3, 2, false);
  Context ctx = rig.context();
  expect_text(expect_error(Code::invalid_state,
                           [&] {
                             linear->forward_one(ctx, rig.normal({4, 3}, 1), nullptr);
                           }),
              {"weight", "[2, 3]"});
  rig.materialize(*linear, DType::f64);
  expect_text(expect_error(Code::invalid_argument,
                           [&] {
                             linear->forward_one(ctx, rig.normal({4, 5}, 1), nullptr);
                           }),
              {"[4, 5]", "3"});
  expect_error(Code::invalid_argument, [&] {
    linear->forward_one(ctx, rig.normal({4, 3}, 1, DType::f32), nullptr);
  });
  expect_error(Code::invalid_argument, [] { make_linear(0, 2, false); });
}

TEST(Embedding, GradientsAgreeWithDifferences) {
  Rig rig;
  const ModulePtr embedding = make_embedding(7, 3);
  rig.materialize(*embedding, DType::f64);
  expect_gradients(rig, *embedding, {rig.ids({2, 5}, 1, 7)});
}

TEST(Embedding, IdsOutsideTheVocabularyAreRefusedWhereTheyAreTaken) {
  Rig rig;
  const ModulePtr embedding = make_embedding(7, 3);
  rig.materialize(*embedding, DType::f64);
  Context ctx = rig.context();
  const auto error_of = [&](const Vector& ids) {
    return expect_error(Code::invalid_argument, [&] {
      check_ids(ctx, embedding->id_rules(), std::vector{rig.tensor(DType::i64, {3}, ids)});
    });
  };
  expect_text(error_of({0, 7, 1}), {"7", "vocabulary of 7"});
  expect_text(error_of({0, -1, 1}), {"-1", "vocabulary of 7"});
  expect_error(Code::invalid_argument, [&] { embedding->forward_one(ctx, rig.normal({3}, 1), nullptr); });
}

TEST(Embedding, WithAScaleGradientsAgreeWithDifferences) {
  Rig rig;
  const ModulePtr embedding = make_embedding(7, 3, 1, 5.5);
  rig.materialize(*embedding, DType::f64);
  expect_gradients(rig, *embedding, {rig.ids({2, 4}, 1, 7)});
}

TEST(Embedding, AScaleIsRoundedToTheComputeDtype) {
  Rig rig;
  const ModulePtr embedding = make_embedding(1, 1, 1, std::sqrt(3072.0));
  rig.materialize(*embedding, DType::bf16);
  put(embedding->parameters()[0]->value, {1});
  Context ctx = rig.context();
  EXPECT_EQ(get(embedding->forward_one(ctx, rig.ids({1, 1}, 1, 1), nullptr)), Vector{55.5});
}

TEST(RmsNorm, GradientsAgreeWithDifferences) {
  Rig rig;
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    const ModulePtr norm = make_rmsnorm(5, 1e-5);
    rig.materialize(*norm, DType::f64);
    expect_gradients(rig, *norm, {rig.normal({3, 5}, 1), rig.normal({3, 5}, 2)}, recompute);
    rig.materialize(*norm, DType::f64);
    expect_gradients(rig, *norm, {rig.normal({1, 1, 5}, 1)}, recompute);
  }
  const ModulePtr narrow = make_rmsnorm(1, 1e-2);
  rig.materialize(*narrow, DType::f64);
  expect_gradients(rig, *narrow, {rig.normal({3, 1}, 1)});
}

TEST(RmsNorm, TheSumOverwritesTheFirstInputOnlyWhereAParentOwnsIt) {
  for (const bool owned : {false, true}) {
    Rig rig;
    const ModulePtr norm = make_rmsnorm(4, 1e-5, owned);
    rig.materialize(*norm, DType::f64);
    Context ctx = rig.context();
    const Tensor x = rig.normal({2, 4}, 1), residual = rig.normal({2, 4}, 2);
    const Vector a = get(x), b = get(residual);
    const Tensor both[] = {x, residual};
    const Values out = norm->forward(ctx, both, nullptr);
    EXPECT_EQ(out[1].raw() == x.raw(), owned);
    if (!owned) {
      EXPECT_EQ(get(x), a);
    }
    for (size_t i = 0; i < a.size(); ++i) EXPECT_DOUBLE_EQ(get(out[1])[i], a[i] + b[i]);
    EXPECT_EQ(get(residual), b);
  }
}

TEST(RmsNorm, TakesAWeightOfAnotherDtype) {
  Rig rig;
  const ModulePtr norm = make_rmsnorm(8, 1e-5);
  rig.materialize(*norm, DType::f32);
  Context ctx = rig.context();
  Frame frame(rig.device->allocator());
  const Tensor y = norm->forward_one(ctx, rig.normal({3, 8}, 1, DType::bf16), &frame);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(norm->backward_one(ctx, rig.normal({3, 8}, 2, DType::bf16), frame).dtype(), DType::bf16);
  EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
}

AttentionOptions attention_options(int64_t heads, int64_t kv_heads, bool bias) {
  AttentionOptions o;
  o.dim = 6;
  o.heads = heads;
  o.kv_heads = kv_heads;
  o.head_dim = 4;
  o.qkv_bias = o.out_bias = bias;
  return o;
}

TEST(Attention, GradientsAgreeWithDifferences) {
  Rig rig;
  for (const auto& [heads, kv_heads, bias] : {std::tuple{3, 3, true}, {4, 2, false}, {2, 1, true}}) {
    const ModulePtr attention = make_attention(attention_options(heads, kv_heads, bias));
    rig.materialize(*attention, DType::f64);
    expect_gradients(rig, *attention, {rig.normal({2, 5, 6}, 1)});
  }
  const ModulePtr single = make_attention(attention_options(2, 1, false));
  rig.materialize(*single, DType::f64);
  Context ctx = rig.context();
  EXPECT_EQ(single->forward_one(ctx, rig.normal({1, 1, 6}, 1), nullptr).shape(), (Shape{1, 1, 6}));
}

// A device that wants a workspace for attention's backward.
class OpsWithWorkspace final : public test::OpsInterceptor {
 public:
  static constexpr size_t kBytes = 100000;
  explicit OpsWithWorkspace(std::unique_ptr<Ops> inner) : OpsInterceptor(*inner), owned_(std::move(inner)) {}
  size_t attention_workspace_bytes(const AttentionBackwardArgs&) override { return kBytes; }
  void attention_backward(const AttentionBackwardArgs& args, Stream& stream) override {
    given += args.workspace.bytes();
    OpsInterceptor::attention_backward(args, stream);
  }
  static inline size_t given = 0;

 private:
  const std::unique_ptr<Ops> owned_;
};

TEST(Attention, ItsBackwardGetsTheWorkspaceThatTheDeviceWantsFromTheTemporaries) {
  Rig rig([](const std::shared_ptr<Device>& device) -> std::unique_ptr<Ops> {
    return std::make_unique<OpsWithWorkspace>(make_ops(device));
  });
  AttentionOptions options;
  options.dim = 8;
  options.heads = 2;
  const ModulePtr attention = make_attention(options);
  rig.materialize(*attention, DType::f32);
  Context ctx = rig.context();
  Frame frame(rig.device->allocator());
  const Tensor x = rig.normal({1, 4, 8}, 1, DType::f32);
  attention->forward_one(ctx, x, &frame);
  EXPECT_LT(rig.temporaries.high_water_bytes(), OpsWithWorkspace::kBytes);
  attention->backward_one(ctx, x, frame);
  EXPECT_EQ(OpsWithWorkspace::given, OpsWithWorkspace::kBytes);
  EXPECT_GE(rig.temporaries.high_water_bytes(), OpsWithWorkspace::kBytes);
  EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
}

TEST(Attention, OneTokenHasNoGradientOfItsScores) {
  Rig rig;
  const ModulePtr attention = make_attention(attention_options(2, 1, true));
  rig.materialize(*attention, DType::f64);
  Context ctx = rig.context();
  Frame frame(rig.device->allocator());
  attention->forward_one(ctx, rig.normal({3, 1, 6}, 1), &frame);
  attention->backward_one(ctx, rig.normal({3, 1, 6}, 2), frame);
  frame.run_weight_gradients(ctx);
  for (double x : get(attention->child(0).parameters()[0]->grad->tensor)) EXPECT_NEAR(x, 0, 1e-14);
}

TEST(Attention, ShiftingAllPositionsChangesNothing) {
  // Rotary scores depend on distances only: with equal tokens a longer prefix of them gives the same output.
  Rig rig;
  const ModulePtr attention = make_attention(attention_options(2, 2, false));
  rig.materialize(*attention, DType::f64);
  Context ctx = rig.context();
  const Vector token = get(rig.normal({6}, 4));
  Vector repeated;
  for (int i = 0; i < 9; ++i) repeated.insert(repeated.end(), token.begin(), token.end());
  const Vector y = get(attention->forward_one(ctx, rig.tensor(DType::f64, {1, 9, 6}, repeated), nullptr));
  for (size_t i = 6; i < y.size(); ++i) EXPECT_NEAR(y[i], y[i % 6], 1e-13);
}

TEST(Attention, RefusesNumbersThatDoNotDivide) {
  expect_text(expect_error(Code::invalid_argument, [] { make_attention(attention_options(4, 3, false)); }),
              {"4", "3"});
  AttentionOptions o = attention_options(4, 2, false);
  o.head_dim = 0;
  expect_text(expect_error(Code::invalid_argument, [&] { make_attention(o); }), {"dim is 6", "heads 4"});
  o.head_dim = 3;
  expect_text(expect_error(Code::invalid_argument, [&] { make_attention(o); }), {"head_dim is 3", "even"});
}

TEST(RopeTable, UnscaledAnglesArePositionsTimesPowersOfTheta) {
  Rig rig;
  Context ctx = rig.context();
  RopeOptions options;
  options.theta = 100;
  RopeTable table(options, 4);
  const RopeTable::Pair pair = table.get(ctx, DType::f64, 3);
  for (int position = 0; position < 3; ++position)
    for (int i = 0; i < 2; ++i) {
      const double angle = position * (i == 0 ? 1.0 : 0.1);
      EXPECT_NEAR(get(pair.cos)[static_cast<size_t>(position * 2 + i)], std::cos(angle), 1e-15);
      EXPECT_NEAR(get(pair.sin)[static_cast<size_t>(position * 2 + i)], std::sin(angle), 1e-15);
    }
  EXPECT_EQ(table.get(ctx, DType::f64, 2).cos.raw(), pair.cos.raw()) << "a shorter one is the same table";
  EXPECT_EQ(table.get(ctx, DType::bf16, 2).cos.dtype(), DType::f32);
  EXPECT_EQ(table.get(ctx, DType::f32, 9).cos.dim(0), 9);
}

TEST(RopeTable, Llama3ScalingKeepsShortWavesAndStretchesLongOnes) {
  // Llama 3.1: theta 500000, factor 8, low 1, high 4, original 8192, head_dim 128. Reference values by the
  // published rule, worked by hand for three pairs.
  RopeOptions o;
  o.theta = 500000;
  o.factor = 8;
  const std::vector<double> scaled = rope_frequencies(o, 128);
  const auto plain = [](int i) { return std::pow(500000.0, -i / 64.0); };
  EXPECT_DOUBLE_EQ(scaled[0], 1);
  EXPECT_NEAR(scaled[20], plain(20), 1e-16);                             // wavelength 380
  EXPECT_NEAR(scaled[63], plain(63) / 8, 1e-20);                         // wavelength 2.6 million
  const double turns = 8192 * plain(32) / (2 * 3.14159265358979323846);  // 1.84, between 1 and 4
  ASSERT_GT(turns, 1);
  ASSERT_LT(turns, 4);
  EXPECT_NEAR(scaled[32], plain(32) / 8 + (plain(32) - plain(32) / 8) * (turns - 1) / 3, 1e-15);
}

TEST(Mlp, GradientsAgreeWithDifferences) {
  Rig rig;
  for (bool bias : {false, true})
    for (Recompute recompute : {Recompute::none, Recompute::selective}) {
      const ModulePtr mlp = make_mlp(3, 7, bias);
      rig.materialize(*mlp, DType::f64);
      expect_gradients(rig, *mlp, {rig.normal({2, 3, 3}, 1)}, recompute);
    }
}

TEST(Attention, WithNormsOfQAndKGradientsAgreeWithDifferences) {
  Rig rig;
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    AttentionOptions options = attention_options(4, 2, false);
    options.qk_norm = QkNorm::head;
    options.eps = 1e-2;
    const ModulePtr attention = make_attention(options);
    rig.materialize(*attention, DType::f64);
    expect_gradients(rig, *attention, {rig.normal({2, 3, 6}, 1)}, recompute);
  }
}

TEST(Block, GradientsAgreeWithDifferences) {
  Rig rig;
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    const ModulePtr block = make_block({attention_options(4, 2, true), 5});
    rig.materialize(*block, DType::f64);
    expect_gradients(rig, *block, {rig.normal({2, 3, 6}, 1)}, recompute);
  }
}

TEST(Block, WithNormsAfterItsHalvesGradientsAgreeWithDifferences) {
  Rig rig;
  for (BlockNorms norms : {BlockNorms::after, BlockNorms::both})
    for (Recompute recompute : {Recompute::none, Recompute::selective}) {
      BlockOptions options{attention_options(4, 2, false), 5};
      options.qk_norm = QkNorm::width;
      options.eps = 1e-2;
      options.norms = norms;
      options.deviation = 0.5;
      const ModulePtr block = make_block(options);
      rig.materialize(*block, DType::f64);
      expect_gradients(rig, *block, {rig.normal({2, 3, 6}, 1)}, recompute);
    }
}

TEST(Sequential, GradientsAgreeWithDifferences) {
  Rig rig;
  const ModulePtr chain =
      make_sequential({make_embedding(5, 3), make_linear(3, 4, true), make_rmsnorm(4, 1e-3)});
  rig.materialize(*chain, DType::f64);
  expect_gradients(rig, *chain, {rig.ids({2, 3}, 1, 5)});
}

TEST(Sequential, KeepsTemporariesFlat) {
  Rig rig;
  const auto high_water = [&](int layers) {
    std::vector<ModulePtr> modules;
    for (int i = 0; i < layers; ++i) modules.push_back(make_linear(16, 16, false));
    const ModulePtr chain = make_sequential(modules);
    Rig own;
    own.materialize(*chain, DType::f64);
    Context ctx = own.context();
    chain->forward_one(ctx, own.normal({8, 16}, 1), nullptr);
    return own.temporaries.high_water_bytes();
  };
  EXPECT_EQ(high_water(9), high_water(3));
  expect_error(Code::invalid_argument, [] { make_sequential({}); });
}

}  // namespace
}  // namespace gangway
