// The layers that gpt2 adds to those of Llama, and the scalings of rotary frequencies.
#include "nn/documents.h"
#include "nn/dropout.h"
#include "nn/nn_testing.h"
#include "nn/rope_table.h"

namespace gangway {
namespace {

using namespace nn_testing;

TEST(LayerNorm, GradientsAgreeWithDifferences) {
  Rig rig;
  for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
    const ModulePtr norm = make_layernorm(5, 1e-2);
    rig.materialize(*norm, DType::f64);
    expect_gradients(rig, *norm, {rig.normal({3, 5}, 1), rig.normal({3, 5}, 2)}, recompute);
    rig.materialize(*norm, DType::f64);
    expect_gradients(rig, *norm, {rig.normal({1, 1, 5}, 1)}, recompute);
  }
}

TEST(LayerNorm, TheSumOverwritesTheFirstInputOnlyWhereAParentOwnsIt) {
  for (const bool owned : {false, true}) {
    Rig rig;
    const ModulePtr norm = make_layernorm(4, 1e-5, owned);
    rig.materialize(*norm, DType::f64);
    Context ctx = rig.context();
    const Tensor both[] = {rig.normal({2, 4}, 1), rig.normal({2, 4}, 2)};
    const Vector a = get(both[0]), b = get(both[1]);
    const Values out = norm->forward(ctx, both, nullptr);
    EXPECT_EQ(out[1].raw() == both[0].raw(), owned);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_DOUBLE_EQ(get(out[1])[i], a[i] + b[i]);
    EXPECT_EQ(get(both[1]), b);
  }
}

TEST(LayerNorm, RefusesAnotherWidth) {
  Rig rig;
  const ModulePtr norm = make_layernorm(4, 1e-5);
  rig.materialize(*norm, DType::f64);
  Context ctx = rig.context();
  expect_text(expect_error(Code::invalid_argument,
                           [&] {
                             norm->forward_one(ctx, rig.normal({2, 3}, 1), nullptr);
                           }),
              {"[2, 3]", "4"});
  expect_error(Code::invalid_argument, [] { make_layernorm(0, 1e-5); });
  expect_error(Code::invalid_argument, [] { make_layernorm(4, 0); });
}

TEST(PlainMlp, GradientsAgreeWithDifferences) {
  Rig rig;
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu, Activation::silu})
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
      const ModulePtr mlp = make_plain_mlp(3, 7, true, activation);
      rig.materialize(*mlp, DType::f64);
      expect_gradients(rig, *mlp, {rig.normal({2, 3, 3}, 1)}, recompute);
    }
}

TEST(Activation, GradientsAgreeWithDifferences) {
  Rig rig;
  for (const Activation activation :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::tanh}) {
    const ModulePtr layer = make_activation(activation);
    expect_gradients(rig, *layer, {rig.normal({2, 1, 7}, 1)});
    expect_gradients(rig, *layer, {rig.normal({1}, 2)});
  }
}

TEST(LearnedPositions, GradientsAgreeWithDifferences) {
  Rig rig;
  for (const Shape& shape : {Shape{2, 5, 3}, Shape{1, 1, 3}, Shape{3, 6, 3}}) {
    const ModulePtr positions = make_learned_positions(6, 3);
    rig.materialize(*positions, DType::f64);
    expect_gradients(rig, *positions, {rig.normal(shape, 1)});
  }
}

TEST(LearnedPositions, DocumentsBeginAtPositionZero) {
  Rig rig(make_ops);
  const ModulePtr layer = make_learned_positions(4, 2);
  rig.materialize(*layer, DType::f64);
  const Vector table = get(layer->parameters()[0]->value);
  int64_t ids[] = {0, 0, 0, 1, 1, 7, 7, 7, 7, 9};
  const std::shared_ptr<Device> host = make_device("cpu");
  const Documents documents(
      {.ids = Tensor::borrow(*host, ids, DType::i64, {2, 5}), .positions = {}, .most_positions = 4}, {});
  Context ctx = rig.context();
  ctx.documents = &documents;
  Frame frame(rig.device->allocator());
  const Tensor x = rig.normal({2, 5, 2}, 1);
  const Vector y = get(layer->forward_one(ctx, x, &frame)), before = get(x);
  const size_t positions[] = {0, 1, 2, 0, 1, 0, 1, 2, 3, 0};
  for (size_t token = 0; token < 10; ++token)
    for (size_t d = 0; d < 2; ++d)
      EXPECT_DOUBLE_EQ(y[2 * token + d], before[2 * token + d] + table[2 * positions[token] + d]);
  const Tensor dy = rig.normal({2, 5, 2}, 2);
  EXPECT_EQ(get(layer->backward_one(ctx, dy, frame)), get(dy));
  frame.run_weight_gradients(ctx);
  Vector wanted(8, 0);
  for (size_t token = 0; token < 10; ++token)
    for (size_t d = 0; d < 2; ++d) wanted[2 * positions[token] + d] += get(dy)[2 * token + d];
  const Vector found = get(layer->parameters()[0]->grad->tensor);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-14);
}

TEST(LearnedPositions, RefusesAPositionBeyondItsTable) {
  Rig rig(make_ops);
  const ModulePtr layer = make_learned_positions(4, 2);
  rig.materialize(*layer, DType::f64);
  Context ctx = rig.context();
  expect_text(expect_error(Code::invalid_argument,
                           [&] {
                             layer->forward_one(ctx, rig.normal({1, 5, 2}, 1), nullptr);
                           }),
              {"position 4", "there are 4"});
}

TEST(Dropout, DropsTheSameNumbersInBackwardAndAnother) {
  Rig rig;
  const ModulePtr dropout = make_dropout(0.25);
  dropout->set_full_name("drop");
  Context ctx = rig.context();
  ctx.training = true;
  ctx.seed = 7;
  Vector ones(4000, 1);
  const Tensor x = rig.tensor(DType::f64, {40, 100}, ones);
  Frame frame(rig.device->allocator());
  const Vector y = get(dropout->forward_one(ctx, x, &frame));
  EXPECT_EQ(get(dropout->backward_one(ctx, x, frame)), y);
  EXPECT_EQ(get(dropout->forward_one(ctx, x, nullptr)), y) << "a recomputation";
  double kept = 0;
  for (const double value : y) {
    EXPECT_TRUE(value == 0 || std::abs(value - 4.0 / 3) < 1e-12) << value;
    kept += value != 0;
  }
  EXPECT_NEAR(kept / 4000, 0.75, 0.03);
  ctx.step = 1;
  EXPECT_NE(get(dropout->forward_one(ctx, x, nullptr)), y) << "another step";
}

// Parts of one value [4 rows, 8 tokens, 6 columns], each as a rank or a microbatch has it.
class DropoutOfParts : public testing::Test {
 protected:
  Vector dropped(const ValuePart& part, const SequencePart& context, int first_row, const Shape& shape,
                 int rows) {
    Dropout dropout(0.5, false);
    dropout.set_full_name("drop");
    dropout.set_part(part);
    const Documents documents(context);
    Context ctx = rig.context();
    ctx.training = true;
    ctx.first_row = first_row;
    ctx.rows = rows;
    ctx.documents = &documents;
    // Neither is part of the bits.
    ctx.microbatch = ctx.data_index = first_row;
    const Vector ones(static_cast<size_t>(shape.count()), 1);
    return get(dropout.forward_one(ctx, rig.tensor(DType::f64, shape, ones), nullptr));
  }
  // The elements of `whole` whose row, token and column the function picks.
  template <typename Picks>
  Vector picked(const Picks& picks) const {
    Vector some;
    for (int64_t at = 0; at < 4 * 8 * 6; ++at)
      if (picks(at / 48, at / 6 % 8, at % 6)) some.push_back(whole[static_cast<size_t>(at)]);
    return some;
  }

  using Along = ValuePart::Along;
  Rig rig;
  const Vector whole = dropped({}, {}, 0, {4, 8, 6}, 4);
};

TEST_F(DropoutOfParts, OfMicrobatchesHasTheBitsOfTheWhole) {
  EXPECT_EQ(dropped({}, {}, 1, {2, 8, 6}, 2),
            picked([](int64_t row, auto, auto) { return row == 1 || row == 2; }));
  EXPECT_EQ(dropped({}, {}, 3, {1, 8, 6}, 0), picked([](int64_t row, auto, auto) { return row == 3; }));
  EXPECT_EQ(dropped({}, {}, 0, {0, 8, 6}, 0), Vector());
}

TEST_F(DropoutOfParts, DoesNotDependOnHowRowsAndColumnsAreFolded) {
  EXPECT_EQ(dropped({}, {}, 0, {32, 6}, 4), whole);
  EXPECT_EQ(dropped({}, {}, 0, {4, 8, 3, 2}, 4), whole);
  EXPECT_EQ(dropped({}, {}, 2, {16, 6}, 2), picked([](int64_t row, auto, auto) { return row >= 2; }));
}

TEST_F(DropoutOfParts, OfTheSequenceHasTheBitsOfTheWhole) {
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(dropped({Along::sequence, rank, 2}, {}, 0, {4, 4, 6}, 4),
              picked([&](auto, int64_t token, auto) { return token / 4 == rank; }));
}

TEST_F(DropoutOfParts, OfTheWidthHasTheBitsOfTheWhole) {
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(dropped({Along::width, rank, 3}, {}, 0, {4, 8, 2}, 4),
              picked([&](auto, auto, int64_t column) { return column / 2 == rank; }));
}

// Rank 1 of 2 has the chunks 1 and 2 of four.
TEST_F(DropoutOfParts, OfContextParallelismHasTheBitsOfTheWhole) {
  EXPECT_EQ(dropped({}, {1, 2}, 0, {4, 4, 6}, 4),
            picked([](auto, int64_t token, auto) { return token >= 2 && token < 6; }));
  EXPECT_EQ(dropped({}, {0, 2}, 2, {1, 4, 6}, 1),
            picked([](int64_t row, int64_t token, auto) { return row == 2 && (token < 2 || token >= 6); }));
  EXPECT_EQ(dropped({Along::sequence, 1, 2}, {0, 2}, 0, {4, 2, 6}, 4),
            picked([](auto, int64_t token, auto) { return token >= 6; }));
}

TEST(Dropout, KeepsTheMeanOfManyElements) {
  Rig rig(make_ops);
  const ModulePtr dropout = make_dropout(0.1);
  Context ctx = rig.context();
  ctx.training = true;
  const Vector ones(1'000'000, 1);
  const Vector y = get(dropout->forward_one(ctx, rig.tensor(DType::f64, {1000, 1000}, ones), nullptr));
  double sum = 0;
  for (const double value : y) sum += value;
  EXPECT_NEAR(sum / 1e6, 1, 5 * std::sqrt(0.1 / 0.9 / 1e6));  // five standard deviations
}

TEST(Dropout, WritesOverAnInputThatItOwns) {
  Rig rig;
  Context ctx = rig.context();
  ctx.training = true;
  const Tensor x = rig.normal({3, 4}, 1), copy = rig.copy(x);
  const Tensor y = make_dropout(0.5, true)->forward_one(ctx, x, nullptr);
  EXPECT_EQ(y.raw(), x.raw());
  EXPECT_EQ(get(y), get(make_dropout(0.5)->forward_one(ctx, copy, nullptr)));
}

TEST(Block, WithDropoutHasTheGradientsOfDifferences) {
  Rig rig;
  BlockOptions options;
  options.dim = 4;
  options.heads = 2;
  options.ffn = 6;
  options.residual_dropout = 0.3;
  const ModulePtr block = make_block(options);
  rig.materialize(*block, DType::f64);
  expect_gradients(rig, *block, {rig.normal({2, 3, 4}, 1)});
  options.norms = BlockNorms::both;
  expect_text(expect_error(Code::invalid_argument, [&] { make_block(options); }),
              {"residual_dropout is 0.3"});
}

TEST(Dropout, IsTheIdentityInEvaluationAndAtProbabilityZero) {
  Rig rig;
  Context ctx = rig.context();
  const Tensor x = rig.normal({3, 4}, 1);
  EXPECT_EQ(get(make_dropout(0.5)->forward_one(ctx, x, nullptr)), get(x));
  ctx.training = true;
  EXPECT_EQ(get(make_dropout(0)->forward_one(ctx, x, nullptr)), get(x));
  for (const double probability : {-0.1, 1.0, 2.0})
    expect_error(Code::invalid_argument, [&] { make_dropout(probability); });
}

// --- scalings of rotary frequencies; the numbers are those of transformers 5.24, which computes them in f32

void expect_close(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / wanted[i], 1, 3e-7) << "pair " << i;
}

TEST(RopeScaling, YarnIsThatOfTransformers) {
  RopeOptions o;
  o.scaling = RopeScaling::yarn;
  o.theta = 1500;
  o.factor = 4;
  o.original_positions = 16;
  o.beta_fast = 1.5;
  o.beta_slow = 0.25;
  o.truncate = false;
  expect_close(rope_frequencies(o, 8),
               {1.0, 0.07331063598394394, 0.006454972550272942, 0.001037221634760499});
  EXPECT_NEAR(rope_attention_factor(o), 1.138629436111989, 1e-14);
  RopeOptions plain;
  plain.scaling = RopeScaling::yarn;
  plain.factor = 4;
  plain.original_positions = 64;
  expect_close(rope_frequencies(plain, 16),
               {1.0, 0.23717081546783447, 0.04999999701976776, 0.007905694656074047, 0.0024999999441206455,
                0.0007905694656074047, 0.0002500000118743628, 7.905694656074047e-05});
  plain.factor = 40;
  plain.original_positions = 4096;
  plain.mscale = 0.707;
  plain.mscale_all_dim = 1;
  expect_close(rope_frequencies(plain, 16),
               {1.0, 0.3162277638912201, 0.10000000149011612, 0.023914724588394165, 0.005124999675899744,
                0.0008498621755279601, 2.499999936844688e-05, 7.905694474175107e-06});
  EXPECT_NEAR(rope_attention_factor(plain), 0.9210423553163399, 1e-14);
}

TEST(RopeScaling, LinearDividesEachFrequency) {
  RopeOptions o;
  o.theta = 100;
  o.scaling = RopeScaling::linear;
  o.factor = 4;
  expect_close(rope_frequencies(o, 4), {0.25, 0.025});
  EXPECT_EQ(rope_attention_factor(o), 1);
}

RopeOptions longrope() {
  RopeOptions o;
  o.theta = 100;
  o.scaling = RopeScaling::longrope;
  o.factor = 4;
  o.original_positions = 16;
  o.partial = 0.5;
  o.short_factors = {1, 2};
  o.long_factors = {4, 5};
  return o;
}

TEST(RopeScaling, LongropeTakesTheFactorsOfTheLengthOfEachSequence) {
  Rig rig;
  Context ctx = rig.context();
  RopeTable table(longrope(), 8);
  const double factor = std::sqrt(1 + std::log(4.0) / std::log(16.0));
  const auto cosine = [&](int64_t tokens, int64_t position, int pair) {
    const Positions positions = table.positions(ctx, tokens);
    const RopeTable::Pair pairs = table.get(ctx, DType::f64, positions.count);
    EXPECT_EQ(pairs.cos.dim(1), 2) << "half of the head turns";
    const auto row =
        positions.rows ? static_cast<int64_t>(get(positions.rows)[static_cast<size_t>(position)]) : position;
    return get(pairs.cos)[static_cast<size_t>(2 * row + pair)];
  };
  for (int again = 0; again < 2; ++again) {
    EXPECT_NEAR(cosine(16, 1, 1), factor * std::cos(0.1 / 2), 1e-15);
    EXPECT_NEAR(cosine(17, 1, 1), factor * std::cos(0.1 / 5), 1e-15);
    EXPECT_NEAR(cosine(2, 1, 0), factor * std::cos(1.0), 1e-15);
    EXPECT_NEAR(cosine(40, 39, 0), factor * std::cos(39 * 0.25), 1e-15);
  }
}

TEST(RopeScaling, WrongOptionsAreRefused) {
  const auto error_of = [](const RopeOptions& o, int64_t head_dim = 8) {
    return expect_error(Code::invalid_argument, [&] { RopeTable(o, head_dim); });
  };
  RopeOptions o = longrope();
  o.short_factors = {1};
  expect_text(error_of(o), {"short_factor has 1 numbers", "2 pairs"});
  o = longrope();
  o.long_factors = {1, 0};
  expect_text(error_of(o), {"long_factor has 0"});
  o = longrope();
  o.original_positions = 1;
  expect_text(error_of(o), {"original_max_position_embeddings is 1"});
  o = {};
  o.partial = 0.7;
  expect_text(error_of(o), {"of which 5 turn", "even"});
  o.partial = 1.5;
  expect_text(error_of(o), {"partial_rotary_factor is 1.5"});
  o = {};
  o.scaling = RopeScaling::yarn;
  o.factor = 2;
  o.theta = 1;
  expect_text(error_of(o), {"yarn has theta 1"});
  o = {};
  o.partial = 0;
  EXPECT_FALSE(RopeTable(o, 3).turns());
}

}  // namespace
}  // namespace gangway
