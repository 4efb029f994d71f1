#include "nn/module.h"

#include <tuple>

#include "base/philox.h"
#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;

DecoderOptions small_config() {
  DecoderOptions c;
  c.vocab = 11;
  c.dim = 8;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.ffn = 12;
  return c;
}

class Wrapper final : public Module {
 public:
  explicit Wrapper(ModulePtr inner) { add_child("", std::move(inner)); }
  const char* kind() const override { return "Wrapper"; }
  bool is_wrapper() const override { return true; }
  Values forward(Context& ctx, std::span<const Tensor> x, Frame* frame) override {
    return child(0).forward(ctx, x, frame);
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    return child(0).backward(ctx, dy, frame);
  }
};

std::vector<std::string> names(const std::vector<NamedParameter>& parameters) {
  std::vector<std::string> out;
  for (const NamedParameter& p : parameters) out.push_back(p.name + " " + p.parameter->shape.text());
  return out;
}

TEST(Names, AreThoseOfHuggingFace) {
  DecoderOptions c = small_config();
  c.layers = 1;
  c.qkv_bias = c.out_bias = c.mlp_bias = true;
  EXPECT_EQ(
      names(named_parameters(*make_decoder(c))),
      (std::vector<std::string>{
          "model.embed_tokens.weight [11, 8]", "model.layers.0.input_layernorm.weight [8]",
          "model.layers.0.self_attn.q_proj.weight [8, 8]", "model.layers.0.self_attn.q_proj.bias [8]",
          "model.layers.0.self_attn.k_proj.weight [4, 8]", "model.layers.0.self_attn.k_proj.bias [4]",
          "model.layers.0.self_attn.v_proj.weight [4, 8]", "model.layers.0.self_attn.v_proj.bias [4]",
          "model.layers.0.self_attn.o_proj.weight [8, 8]", "model.layers.0.self_attn.o_proj.bias [8]",
          "model.layers.0.post_attention_layernorm.weight [8]", "model.layers.0.mlp.gate_proj.weight [12, 8]",
          "model.layers.0.mlp.gate_proj.bias [12]", "model.layers.0.mlp.up_proj.weight [12, 8]",
          "model.layers.0.mlp.up_proj.bias [12]", "model.layers.0.mlp.down_proj.weight [8, 12]",
          "model.layers.0.mlp.down_proj.bias [8]", "model.norm.weight [8]", "lm_head.weight [11, 8]"}));
}

TEST(Names, TiedHeadIsOneParameterWithAnAlias) {
  DecoderOptions c = small_config();
  c.tied = true;
  const ModulePtr llama = make_decoder(c);
  EXPECT_EQ(named_parameters(*llama).back().name, "model.norm.weight");
  const std::vector<NamedParameter> all = named_parameters_with_aliases(*llama);
  EXPECT_EQ(all.back().name, "lm_head.weight");
  EXPECT_EQ(all.back().parameter, all.front().parameter);
  assign_full_names(*llama);
  EXPECT_EQ(all.back().parameter->full_name, "model.embed_tokens.weight");
}

TEST(Names, WrappersAddNothing) {
  const ModulePtr llama = make_decoder(small_config());
  const std::vector<std::string> plain = names(named_parameters(*llama));
  llama->set_child(1, std::make_shared<Wrapper>(std::make_shared<Wrapper>(llama->children()[1].module)));
  EXPECT_EQ(names(named_parameters(*llama)), plain);
  const ModulePtr root = std::make_shared<Wrapper>(llama);
  EXPECT_EQ(names(named_parameters(*root)), plain);
  const std::vector<NamedModule> modules = named_modules(root);
  EXPECT_EQ(modules[0].module, root);
  EXPECT_EQ(modules[0].parent, nullptr);
  std::vector<std::string> kinds;
  for (const NamedModule& m : modules)
    if (m.path == "model.layers.0") kinds.push_back(m.module->kind());
  EXPECT_EQ(kinds, (std::vector<std::string>{"Wrapper", "Wrapper", "Block"}));
  for (const NamedModule& m : modules)
    if (m.parent != nullptr) {
      EXPECT_EQ(m.parent->children()[m.index].module, m.module);
    }
  ASSERT_NE(decoder_options(*root), nullptr);
  EXPECT_EQ(decoder_options(*root)->head_dim, 2);
  EXPECT_EQ(decoder_options(*make_rmsnorm(3, 1e-5)), nullptr);
}

TEST(Names, PatternsMatchWholePathsComponentByComponent) {
  EXPECT_TRUE(path_matches("model.layers.*", "model.layers.17"));
  EXPECT_FALSE(path_matches("model.layers.*", "model.layers.17.mlp"));
  EXPECT_FALSE(path_matches("model.layers.*", "model.layers"));
  EXPECT_TRUE(path_matches("model.layers.*.self_attn.*_proj", "model.layers.3.self_attn.q_proj"));
  EXPECT_FALSE(path_matches("*_proj", "self_attn.q_proj"));
  EXPECT_TRUE(path_matches("*", ""));
  EXPECT_TRUE(path_matches("**", "model.layers.0.mlp.down_proj.weight"));
  EXPECT_TRUE(path_matches("", ""));
  EXPECT_FALSE(path_matches("", "a"));
  EXPECT_TRUE(path_matches("a*b*c", "aXbYbc"));
  EXPECT_FALSE(path_matches("a*b", "abX"));
}

TEST(Names, TwoStarsSpanDotsWhereverTheyStand) {
  const char* const names[] = {"lm_head.weight",
                               "model.norm.weight",
                               "model.layers.0.mlp.up_proj.weight",
                               "model.layers.1.self_attn.q_proj.bias",
                               "model.embed_tokens.weight",
                               "weight"};
  struct Row {
    const char* pattern;
    std::vector<int> matching;  // indices into names
  };
  const Row rows[] = {{"**", {0, 1, 2, 3, 4, 5}},
                      {"**.weight", {0, 1, 2, 4, 5}},
                      {"**.bias", {3}},
                      {"**bias", {3}},
                      {"*.bias", {}},
                      {"model.**", {1, 2, 3, 4}},
                      {"model.**.weight", {1, 2, 4}},
                      {"model.layers.**", {2, 3}},
                      {"**.layers.*.**", {2, 3}},
                      {"**.0.**", {2}},
                      {"model.**.**.weight", {1, 2, 4}},
                      {"**norm.weight", {1}},
                      {"**.norm.*", {1}},
                      {"m**t", {1, 2, 4}},
                      {"**.*_proj.*", {2, 3}},
                      {"***", {0, 1, 2, 3, 4, 5}},
                      {"**ayers", {}},
                      {"**.ead.weight", {}},
                      {"**.", {}},
                      {"model.**.", {}},
                      {"**.**", {0, 1, 2, 3, 4, 5}},
                      {"*", {5}},
                      {"*.*", {0}}};
  for (const Row& row : rows) {
    std::vector<int> got;
    for (int i = 0; i < 6; ++i)
      if (path_matches(row.pattern, names[i])) got.push_back(i);
    EXPECT_EQ(got, row.matching) << row.pattern;
  }
  EXPECT_TRUE(path_matches("**", ""));
  EXPECT_FALSE(path_matches("model.**", "model"));
  EXPECT_FALSE(path_matches("**.a", "ba"));
}

TEST(Initialisation, FollowsTheCounterOfTheFullName) {
  Rig rig;
  const ModulePtr llama = make_decoder(small_config());
  materialize(*llama, *rig.ops, 1234);
  for (const NamedParameter& p : named_parameters(*llama)) {
    EXPECT_EQ(p.parameter->full_name, p.name);
    EXPECT_EQ(p.parameter->value.raw(), p.parameter->shard.raw());
    EXPECT_EQ(p.parameter->local_shape(), p.parameter->shape);
    const Vector value = get(p.parameter->value);
    for (size_t i = 0; i < value.size(); ++i) {
      const double want =
          p.name.find("norm") != std::string::npos ? 1.0 : 0.02 * philox_normal(philox_key(1234, p.name), i);
      ASSERT_EQ(value[i], static_cast<double>(static_cast<float>(want))) << p.name << " " << i;
    }
  }
}

TEST(Initialisation, GoldenValues) {
  Rig rig;
  const ModulePtr llama = make_decoder(small_config());
  for (const NamedParameter& p : named_parameters(*llama)) p.parameter->dtype = DType::f64;
  materialize(*llama, *rig.ops, 42);
  const std::vector<NamedParameter> p = named_parameters(*llama);
  const Vector embed = get(p[0].parameter->value), q = get(p[2].parameter->value),
               head = get(p.back().parameter->value);
  // Frozen bits, and what an independent program with another log, sin and cos gives for the same formula.
  const std::tuple<double, double, double> cases[] = {
      {embed[0], 0x1.5c480daba1cp-7, 0.010628706622140884},
      {embed[87], 0x1.c57b5f8df2a56p-6, 0.0276783402585273},
      {q[5], 0x1.90a5f4d217b1ap-8, 0.006113407393143061},
      {head[1], -0x1.4379e5910cfd5p-7, -0.009871708958691194}};
  for (const auto& [value, frozen, independent] : cases) {
    EXPECT_EQ(value, frozen);
    EXPECT_NEAR(value, independent, 1e-16);
  }
}

// Every box of a tensor of two dims.
template <typename Body>
void for_boxes(const Shape& shape, const Body& body) {
  for (int64_t r0 = 0; r0 <= shape[0]; ++r0)
    for (int64_t r1 = r0; r1 <= shape[0]; ++r1)
      for (int64_t c0 = 0; c0 <= shape[1]; ++c0)
        for (int64_t c1 = c0; c1 <= shape[1]; ++c1) body(Box{{r0, c0}, {r1 - r0, c1 - c0}});
}

Vector part_of(const Vector& whole, int64_t columns, const Box& box) {
  Vector part;
  for (int64_t r = box.first[0]; r < box.last(0); ++r)
    for (int64_t c = box.first[1]; c < box.last(1); ++c)
      part.push_back(whole[static_cast<size_t>(r * columns + c)]);
  return part;
}

TEST(Initialisation, ABoxHasTheValuesOfTheWholeTensor) {
  Rig rig;
  Parameter p("weight", {5, 3}, Init::normal(0.3));
  p.full_name = "a.weight";
  const Tensor whole = rig.empty(DType::f64, {5, 3});
  initialize_box(*rig.ops, rig.device->stream(), p, 9, whole_box(p.shape), whole);
  for_boxes(p.shape, [&](const Box& box) {
    const Tensor part = rig.empty(DType::f64, box.shape);
    initialize_box(*rig.ops, rig.device->stream(), p, 9, box, part);
    EXPECT_EQ(get(part), part_of(get(whole), 3, box));
  });
}

TEST(Initialisation, AnInitializerWritesItsBoxInTheParametersDtype) {
  struct Counting final : Init::Initializer {
    void fill(int64_t first, int64_t last, void* out, size_t, DType) override {
      auto* at = static_cast<double*>(out);
      for (int64_t i = first * 2; i < last * 2; ++i) *at++ = static_cast<double>(i);
    }
  };
  Rig rig;
  Parameter p("weight", {4, 2}, {Init::Kind::fill, 0, std::make_shared<Counting>()});
  p.dtype = DType::f64;
  for (DType dtype : {DType::f64, DType::f32}) {
    for_boxes(p.shape, [&](const Box& box) {
      const Tensor part = rig.empty(dtype, box.shape);
      initialize_box(*rig.ops, rig.device->stream(), p, 0, box, part);
      EXPECT_EQ(get(part), part_of({0, 1, 2, 3, 4, 5, 6, 7}, 2, box));
    });
  }
}

TEST(Initialisation, FrozenParametersAndBuffersHaveNoGradient) {
  Rig rig;
  const ModulePtr linear = make_linear(3, 2, true);
  linear->parameters()[0]->trainable = false;
  linear->parameters()[1]->kind = Parameter::Kind::buffer;
  materialize(*linear, *rig.ops, 0);
  EXPECT_FALSE(linear->parameters()[0]->grad);
  EXPECT_FALSE(linear->parameters()[1]->grad);
}

TEST(CallSeed, DiffersInEveryPartAndNotWhenRecomputed) {
  Rig rig;
  Context ctx = rig.context();
  ctx.seed = 5;
  ctx.step = 3;
  ctx.microbatch = 2;
  ctx.data_index = 1;
  const uint64_t seed = call_seed(ctx, "layers.0");
  ctx.recomputing = true;
  EXPECT_EQ(call_seed(ctx, "layers.0"), seed);
  EXPECT_NE(call_seed(ctx, "layers.1"), seed);
  const auto changed = [&](auto change) {
    Context other = ctx;
    change(other);
    return call_seed(other, "layers.0");
  };
  EXPECT_NE(changed([](Context& c) { c.seed = 6; }), seed);
  EXPECT_NE(changed([](Context& c) { c.step = 4; }), seed);
  EXPECT_NE(changed([](Context& c) { c.microbatch = 1; }), seed);
  EXPECT_NE(changed([](Context& c) { c.data_index = 2; }), seed);
  const PhiloxBlock a = philox(philox_key(5, "layers.0"), 3);
  const PhiloxBlock b = philox(static_cast<uint64_t>(a[1]) << 32 | a[0], 1ull << 32 | 2);
  EXPECT_EQ(seed, static_cast<uint64_t>(b[1]) << 32 | b[0]);
}

// Each further star used to multiply the cost of a component that does not match.
TEST(Paths, ManyStarsCostNoMoreThanTheirLength) {
  std::string pattern;
  for (int i = 0; i < 4000; ++i) pattern += "*a";
  EXPECT_FALSE(path_matches(pattern + "b", std::string(8000, 'a')));
  EXPECT_TRUE(path_matches(pattern + "*", std::string(8000, 'a')));
  for (const char* matching : {"ab*d", "*", "a*b*c*d", "abcd", "***d", "a***"})
    EXPECT_TRUE(path_matches(matching, "abcd")) << matching;
  for (const char* other : {"ab*c", "a*bd", "bcd*", "", "abcd*e", "*abcde"})
    EXPECT_FALSE(path_matches(other, "abcd")) << other;
}

}  // namespace
}  // namespace gangway
