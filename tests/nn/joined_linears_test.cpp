// Linear layers that read one input, as one product where their weights lie side by side.
#include "nn/joined_linears.h"

#include <array>
#include <functional>
#include <map>

#include "nn/arriving.h"
#include "nn/attention.h"
#include "nn/counting_ops.h"
#include "nn/fp8.h"
#include "nn/linear.h"
#include "nn/lora.h"
#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;

bool joins(const Rig& rig) { return rig.device->kind() == DeviceKind::cuda; }

// Gives the module values and gradients that lie one after the other, weights before biases, as in a
// parameter group, or with gaps of `gap` bytes.
constexpr size_t kGap = 64;
void materialize_together(Rig& rig, Module& module, DType dtype, size_t gap = 0) {
  rig.materialize(module, dtype);
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::vector<NamedParameter> all = named_parameters(module);
  size_t bytes = 0;
  for (const NamedParameter& p : all) bytes += static_cast<size_t>(p.parameter->shape.count()) * 8 + gap;
  const auto values = Buffer::allocate(rig.device->allocator(), bytes);
  const auto gradients = Buffer::allocate(rig.device->allocator(), bytes);
  size_t value_at = 0, gradient_at = 0;
  for (const bool matrices : {true, false})
    for (const NamedParameter& named : all) {
      Parameter& p = *named.parameter;
      if ((p.shape.rank() > 1) != matrices) continue;
      const Tensor value(values, value_at, dtype, p.shape), gradient(gradients, gradient_at, wide, p.shape);
      put(value, get(p.value));
      p.value = value;
      p.grad = make_accumulator(gradient);
      value_at += value.bytes() + gap;
      gradient_at += gradient.bytes() + gap;
    }
}

struct Results {
  Vector y, dx;
  std::map<std::string, Vector> gradients;
  int products = 0, rotations = 0;
};

struct Run {
  std::function<void(Module&)> between = {};  // forward and backward
  ArrivingInput* arriving = nullptr;
  int rounds = 1;
};

Results results_of(Rig& rig, Module& module, const Tensor& x, const Tensor& dy, const Run& run = {}) {
  for (const NamedParameter& p : named_parameters(module))
    if (p.parameter->grad) p.parameter->grad->written = false;
  Results all;
  CountingOps::counts().clear();
  for (int round = 0; round < run.rounds; ++round) {
    Context ctx = rig.context();
    ctx.training = true;
    Frame frame(rig.device->allocator());
    ctx.arriving = run.arriving;
    all.y = get(module.forward_one(ctx, x, &frame));
    ctx.arriving = nullptr;
    if (run.between) run.between(module);
    const Tensor given = frame.allocate_gradient(dy.dtype(), dy.shape());
    put(given, get(dy));
    all.dx = get(module.backward_one(ctx, given, frame));
    frame.run_weight_gradients(ctx);
    EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
  }
  all.products = CountingOps::counts()["gemm"];
  all.rotations = CountingOps::counts()["rope"];
  for (const NamedParameter& p : named_parameters(module))
    if (p.parameter->grad && p.parameter->grad->written)
      all.gradients[p.name] = get(p.parameter->grad->tensor);
  return all;
}

void expect_near(const Results& got, const Results& want, double limit) {
  EXPECT_LE(normwise(got.y, want.y), limit);
  EXPECT_LE(normwise(got.dx, want.dx), limit);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (const auto& [name, gradient] : want.gradients)
    EXPECT_LE(normwise(got.gradients.at(name), gradient), limit) << name;
}

AttentionOptions attention_options(bool bias = false, QkNorm norm = QkNorm::none) {
  AttentionOptions options;
  options.dim = 32;
  options.heads = 4;
  options.kv_heads = 2;
  options.qkv_bias = bias;
  options.qk_norm = norm;
  return options;
}

ModulePtr named(ModulePtr module) {
  assign_full_names(*module);
  return module;
}

struct Case {
  const char* name;
  ModulePtr (*make)();
  int apart, joined;  // products of forward and backward
};
const Case kCases[] = {
    {"attention", [] { return make_attention(attention_options()); }, 12, 6},
    {"attention with biases", [] { return make_attention(attention_options(true)); }, 12, 6},
    {"gated mlp", [] { return make_mlp(32, 48, false, 0.02, Activation::silu); }, 9, 6},
    {"gated mlp with biases", [] { return make_mlp(32, 48, true, 0.02, Activation::gelu); }, 9, 6},
};

constexpr double kF32 = 2e-6, kBf16 = 2e-2;

// Two modules of a case with the same values. The layers of the first one stay apart; a GPU joins those of
// the second one.
struct Both {
  Both(Rig& rig, const Case& c, DType dtype = DType::f32) : apart(named(c.make())), joined(named(c.make())) {
    materialize_together(rig, *apart, dtype, kGap);
    materialize_together(rig, *joined, dtype);
  }
  const ModulePtr apart, joined;
};

TEST(JoinedLinears, TheyComputeWhatTheLayersComputeApart) {
  Rig rig(counting);
  for (const Case& c : kCases)
    for (const auto& [dtype, limit] :
         {std::pair{DType::f64, 1e-13}, {DType::f32, kF32}, {DType::bf16, kBf16}})
      for (const Shape& tokens : {Shape{1, 1}, Shape{2, 3}, Shape{1, 65}, Shape{0, 4}}) {
        SCOPED_TRACE(text(c.name, ", ", name(dtype), " ", tokens.text()));
        const Both both(rig, c, dtype);
        const Shape shape{tokens[0], tokens[1], 32};
        const Tensor x = rig.normal(shape, 1, dtype), dy = rig.normal(shape, 2, dtype);
        const Results want = results_of(rig, *both.apart, x, dy), got = results_of(rig, *both.joined, x, dy);
        expect_near(got, want, limit);
        EXPECT_EQ(want.products, c.apart);
        EXPECT_EQ(got.products, joins(rig) ? c.joined : c.apart);
        EXPECT_EQ(got.rotations, joins(rig) ? want.rotations / 2 : want.rotations);
      }
}

TEST(JoinedLinears, ASecondMicrobatchAddsToTheGradientsOfTheFirst) {
  Rig rig(counting);
  for (const Case& c : kCases) {
    const Both both(rig, c);
    const Tensor x = rig.normal({2, 5, 32}, 1, DType::f32), dy = rig.normal({2, 5, 32}, 2, DType::f32);
    expect_near(results_of(rig, *both.joined, x, dy, {.rounds = 2}),
                results_of(rig, *both.apart, x, dy, {.rounds = 2}), kF32);
  }
}

// One weight is frozen, or has a term of its gradient already: each of the others is written by itself.
TEST(JoinedLinears, WeightsThatAreTreatedDifferentlyGetTheirOwnGradients) {
  Rig rig(counting);
  const auto freeze = [](Module& module) { named_parameters(module)[1].parameter->trainable = false; };
  const auto freeze_weight = [](Module& module) { named_parameters(module)[0].parameter->trainable = false; };
  const auto start = [&](Module& module) {
    Parameter& p = *named_parameters(module)[0].parameter;
    put(p.grad->tensor, get(rig.normal(p.shape, 9)));
    p.grad->written = true;
  };
  for (const Case& c : kCases)
    for (const std::function<void(Module&)>& change :
         {std::function<void(Module&)>(freeze), {freeze_weight}, {start}}) {
      const Both both(rig, c);
      const Tensor x = rig.normal({2, 5, 32}, 1, DType::f32), dy = rig.normal({2, 5, 32}, 2, DType::f32);
      expect_near(results_of(rig, *both.joined, x, dy, {.between = change}),
                  results_of(rig, *both.apart, x, dy, {.between = change}), kF32);
    }
}

TEST(JoinedLinears, ValuesThatMoveBetweenForwardAndBackwardAreFollowed) {
  Rig rig(counting);
  const auto move = [&](Module& module) {
    for (const NamedParameter& p : named_parameters(module)) {
      p.parameter->value = rig.copy(p.parameter->value);
      p.parameter->grad = make_accumulator(rig.empty(DType::f32, p.parameter->shape));
    }
  };
  for (const Case& c : kCases) {
    const Both both(rig, c);
    const Tensor x = rig.normal({2, 5, 32}, 1, DType::f32), dy = rig.normal({2, 5, 32}, 2, DType::f32);
    expect_near(results_of(rig, *both.joined, x, dy, {.between = move}), results_of(rig, *both.apart, x, dy),
                kF32);
  }
}

TEST(JoinedLinears, LayersWhoseWeightsLieApartOrThatDoMoreThanOneProductStayApart) {
  Rig rig(counting);
  struct Apart {
    const char* name;
    std::function<void(const ModulePtr&)> change;
    size_t gap;
  };
  const Apart ways[] = {
      {"gaps", [](const ModulePtr&) {}, kGap},
      {"an adapter", [](const ModulePtr& m) { apply_lora(m, {.patterns = {"v_proj"}, .rank = 2}); }, 0},
  };
  for (const Apart& way : ways) {
    const ModulePtr module = named(make_attention(attention_options()));
    way.change(module);
    assign_full_names(*module);
    materialize_together(rig, *module, DType::f32, way.gap);
    const Tensor x = rig.normal({2, 8, 32}, 1, DType::f32), dy = rig.normal({2, 8, 32}, 2, DType::f32);
    EXPECT_EQ(results_of(rig, *module, x, dy).rotations, 4) << way.name;
  }
  for (const QkNorm norm : {QkNorm::head, QkNorm::width}) {
    const ModulePtr module = named(make_attention(attention_options(false, norm)));
    materialize_together(rig, *module, DType::f32);
    const Tensor x = rig.normal({2, 8, 32}, 1, DType::f32), dy = rig.normal({2, 8, 32}, 2, DType::f32);
    EXPECT_EQ(results_of(rig, *module, x, dy).rotations, 4);
  }
}

TEST(JoinedLinears, LayersInFp8StayApart) {
  Rig rig(make_ops);
  Results results[2];
  for (const bool together : {false, true}) {
    const ModulePtr module = named(make_attention(attention_options()));
    apply_fp8(module, {.patterns = {"v_proj"}});
    if (together)
      materialize_together(rig, *module, DType::f32);
    else
      rig.materialize(*module, DType::f32);
    const Tensor x = rig.normal({2, 8, 32}, 1, DType::f32), dy = rig.normal({2, 8, 32}, 2, DType::f32);
    results[together] = results_of(rig, *module, x, dy);
  }
  EXPECT_EQ(results[0].y, results[1].y);
  EXPECT_EQ(results[0].dx, results[1].dx);
  EXPECT_EQ(results[0].gradients, results[1].gradients);
}

TEST(JoinedLinears, WrongInputsAreRefusedInTheWordsOfALayer) {
  Rig rig(counting);
  for (const Case& c : kCases) {
    const ModulePtr module = named(c.make());
    materialize_together(rig, *module, DType::f32);
    Context ctx = rig.context();
    for (const Tensor& x : {rig.normal({1, 4, 31}, 1, DType::f32), rig.normal({1, 4, 32}, 1, DType::f64)}) {
      const Error error = expect_error(Code::invalid_argument, [&] { module->forward_one(ctx, x, nullptr); });
      EXPECT_NE(error.message().find("_proj: input is"), std::string::npos) << error.message();
    }
  }
}

// Rows 3 and 4 arrive before the others.
class InTwoParts final : public ArrivingInput {
 public:
  explicit InTwoParts(Tensor x) : x_(std::move(x)) {}
  bool holds(const Tensor& x) const override { return taken_ < 3 && x.raw() == x_.raw(); }
  std::vector<RowRange> next(Context&) override {
    ++taken_;
    if (taken_ == 1) return {{3, 5}};
    if (taken_ == 2) return {{0, 3}, {5, 10}};
    return {};
  }
  int taken() const { return taken_; }

 private:
  const Tensor x_;
  int taken_ = 0;
};

TEST(JoinedLinears, AnInputThatStillArrivesIsMultipliedPartByPart) {
  Rig rig(counting);
  for (const Case& c : kCases) {
    const Both both(rig, c);
    const Tensor x = rig.normal({2, 5, 32}, 1, DType::f32), dy = rig.normal({2, 5, 32}, 2, DType::f32);
    InTwoParts arriving(x);
    expect_near(results_of(rig, *both.joined, x, dy, {.arriving = &arriving}),
                results_of(rig, *both.apart, x, dy), kF32);
    EXPECT_EQ(arriving.taken(), 3);
  }
}

TEST(JoinedColumns, ColumnsOfOneTensorAreFoundAndOthersAreNot) {
  Rig rig(make_ops);
  const Tensor all = rig.normal({2, 3, 12}, 1), other = rig.normal({2, 3, 4}, 2);
  const Tensor a = columns(all, 0, 4), b = columns(all, 4, 12);
  const Tensor found = joined_columns(std::array{a, b});
  ASSERT_TRUE(found);
  EXPECT_EQ(found.byte_offset(), all.byte_offset());
  EXPECT_EQ(found.shape(), all.shape());
  EXPECT_FALSE(joined_columns(std::array{b, a}));
  EXPECT_FALSE(joined_columns(std::array{a, columns(all, 0, 8)}));
  EXPECT_FALSE(joined_columns(std::array{a, other}));
  EXPECT_FALSE(joined_columns(std::array{other, a}));
  EXPECT_FALSE(joined_columns(std::array{a, columns(all, 5, 12)}));
  EXPECT_FALSE(joined_columns(std::array{a, columns(all, 4, 10)}));  // rows are longer than both
}

}  // namespace
}  // namespace gangway
