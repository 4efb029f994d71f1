// Linear layers in FP8: their three products, what chooses them, and histories of scales.
#include "nn/fp8.h"
#include "nn/linear.h"
#include "nn/lora.h"
#include "nn/nn_testing.h"
#include "support/tensor_file.h"

namespace gangway {
namespace {

using namespace nn_testing;

const test::TensorFile& reference() {
  static const test::TensorFile file("fp8/reference");
  return file;
}

Tensor given(Rig& rig, const std::string& name, DType dtype) {
  const auto& entry = reference().at(name);
  return rig.tensor(dtype, {entry.dims[0], entry.dims[1]}, entry.values);
}

ModulePtr layer(Rig& rig, Fp8Scaling scaling, DType dtype, bool bias = false, int history = 16) {
  const ModulePtr linear = make_linear(32, 24, bias);
  Fp8Options options;
  options.scaling = scaling;
  options.history = history;
  apply_fp8(linear, options);
  rig.materialize(*linear, dtype);
  put(linear->parameters()[0]->value, reference().values("w"));
  return linear;
}

struct Products {
  Vector y, dx, dw;
};

Products run(Rig& rig, Module& linear, const Tensor& x, const Tensor& dy, int64_t step = 0) {
  Context ctx = rig.context();
  ctx.training = true;
  ctx.step = step;
  Frame frame(rig.device->allocator());
  linear.parameters()[0]->grad->written = false;
  Products all;
  all.y = get(linear.forward_one(ctx, x, &frame));
  all.dx = get(linear.backward_one(ctx, dy, frame));
  frame.run_weight_gradients(ctx);
  all.dw = get(linear.parameters()[0]->grad->tensor);
  EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
  return all;
}

void expect_products(const Products& got, const char* y, const char* gradients, double limit) {
  EXPECT_LE(normwise(got.y, reference().values(std::string(y) + ".y")), limit);
  EXPECT_LE(normwise(got.dx, reference().values(std::string(gradients) + ".grad_x")), limit);
  EXPECT_LE(normwise(got.dw, reference().values(std::string(gradients) + ".grad_w")), limit);
}

TEST(Fp8Linear, ProductsAreThoseOfTheReference) {
  for (const auto& [dtype, limit] : {std::pair{DType::f64, 1e-13}, {DType::f32, 1e-6}}) {
    Rig rig(make_ops);
    const Tensor x = given(rig, "x", dtype), dy = given(rig, "grad_y", dtype);
    for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::delayed})
      expect_products(run(rig, *layer(rig, scaling, dtype), x, dy), "tensor", "tensor", limit);
    expect_products(run(rig, *layer(rig, Fp8Scaling::row, dtype), x, dy), "row", "row_again", limit);
  }
}

// With sizes that a GPU takes.
TEST(Fp8Linear, EveryDeviceComputesWhatACpuDoes) {
  Rig rig(make_ops), cpu("cpu");
  cpu.ops = make_ops(cpu.device);
  for (const auto& [dtype, limit] : {std::pair{DType::f32, 2e-6}, {DType::bf16, 1e-2}})
    for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::delayed, Fp8Scaling::row}) {
      const auto products = [&, dtype = dtype](Rig& on) {
        const ModulePtr linear = make_linear(32, 48, dtype == DType::f32);
        Fp8Options options;
        options.scaling = scaling;
        apply_fp8(linear, options);
        on.materialize(*linear, dtype);
        run(on, *linear, on.normal({16, 32}, 7, dtype), on.normal({16, 48}, 8, dtype), 1);
        return run(on, *linear, on.normal({32, 32}, 1, dtype), on.normal({32, 48}, 2, dtype), 2);
      };
      const Products got = products(rig), want = products(cpu);
      EXPECT_LE(normwise(got.y, want.y), limit);
      EXPECT_LE(normwise(got.dx, want.dx), limit);
      EXPECT_LE(normwise(got.dw, want.dw), limit);
    }
}

// Whose scales begin at an address that cuBLASLt does not read from.
TEST(Fp8Linear, EveryDeviceMultipliesSomeRowsOfMany) {
  Rig rig(make_ops);
  const ModulePtr made = make_linear(32, 48, false);
  apply_fp8(made, {.patterns = {}, .scaling = Fp8Scaling::row});
  rig.materialize(*made, DType::f32);
  const auto& linear = dynamic_cast<const Linear&>(*made);
  Context ctx = rig.context();
  const StackScope scope(rig.temporaries);
  const Tensor whole = rig.temporaries.allocate(DType::f32, {6, 48});
  const Tensor parts = rig.temporaries.allocate(DType::f32, {6, 48});
  const Linear::Operands all = linear.operands(ctx, rig.normal({6, 32}, 1, DType::f32), nullptr);
  linear.product(ctx, all, whole);
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}, {3, 6}})
    linear.product(ctx, all.rows(first, last), parts.slice(0, first, last));
  EXPECT_LE(normwise(get(parts), get(whole)), 1e-6);
}

TEST(Fp8Linear, TheBiasIsAddedAsItIs) {
  Rig rig(make_ops);
  const ModulePtr linear = layer(rig, Fp8Scaling::tensor, DType::f64, true);
  Context ctx = rig.context();
  Vector y = get(linear->forward_one(ctx, given(rig, "x", DType::f64), nullptr));
  const Vector bias = get(linear->parameters()[1]->value);
  for (size_t i = 0; i < y.size(); ++i) y[i] -= bias[i % bias.size()];
  EXPECT_LE(normwise(y, reference().values("tensor.y")), 1e-13);
}

TEST(Fp8Linear, NoTokensAndOneToken) {
  for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::delayed, Fp8Scaling::row})
    for (const int64_t tokens : {0, 1}) {
      Rig rig(make_ops);
      const ModulePtr linear = layer(rig, scaling, DType::f32);
      const Products got =
          run(rig, *linear, rig.normal({tokens, 32}, 1, DType::f32), rig.normal({tokens, 24}, 2, DType::f32));
      EXPECT_EQ(got.y.size(), static_cast<size_t>(24 * tokens));
      EXPECT_EQ(std::count(got.dw.begin(), got.dw.end(), 0.0) == 24 * 32, tokens == 0);
    }
}

// The second step's scales are those of the first step's values, whatever microbatch of it has the largest.
TEST(Fp8Linear, DelayedScalesAreThoseOfEarlierSteps) {
  Rig rig(make_ops);
  const Tensor x = given(rig, "x", DType::f64), dy = given(rig, "grad_y", DType::f64);
  const auto times = [&](const Tensor& t, double factor) {
    const Tensor copy = rig.copy(t);
    rig.ops->scale(copy, factor, rig.device->stream());
    return copy;
  };
  const ModulePtr delayed = layer(rig, Fp8Scaling::delayed, DType::f64);
  EXPECT_TRUE(delayed->tables().empty());
  run(rig, *delayed, x, dy, 1);
  EXPECT_EQ(delayed->tables().size(), 3u);
  const Products second = run(rig, *delayed, times(x, 0.3), times(dy, 0.3), 2);
  EXPECT_EQ(run(rig, *delayed, times(x, 0.3), times(dy, 0.3), 2).y, second.y);  // as a recomputation
  // Smaller values have the scale of the first step's, which gives them other codes than a scale of their own.
  Products own = run(rig, *layer(rig, Fp8Scaling::tensor, DType::f64), times(x, 0.3), times(dy, 0.3));
  EXPECT_GT(normwise(second.y, own.y), 1e-4);
  EXPECT_LT(normwise(second.y, own.y), 0.1);
  // Values four times as large are kept within the top of the known scale.
  const Products clamped = run(rig, *delayed, times(x, 4), dy, 3);
  own = run(rig, *layer(rig, Fp8Scaling::tensor, DType::f64), times(x, 4), dy);
  EXPECT_GT(normwise(clamped.y, own.y), 0.1);
}

TEST(Fp8Linear, AMagnitudeIsForgottenAfterTheStepsOfTheHistory) {
  Rig rig(make_ops);
  const Tensor x = given(rig, "x", DType::f64), dy = given(rig, "grad_y", DType::f64), larger = rig.copy(x);
  rig.ops->scale(larger, 3, rig.device->stream());
  const ModulePtr delayed = layer(rig, Fp8Scaling::delayed, DType::f64, false, 2);
  const Vector own = run(rig, *layer(rig, Fp8Scaling::tensor, DType::f64), x, dy).y;
  run(rig, *delayed, larger, dy, 1);
  for (const int64_t step : {2, 3, 4, 5})
    EXPECT_EQ(run(rig, *delayed, x, dy, step).y == own, step > 3) << step;
}

TEST(Fp8Linear, EvaluationRecordsNothing) {
  Rig rig(make_ops);
  const ModulePtr delayed = layer(rig, Fp8Scaling::delayed, DType::f64);
  Context ctx = rig.context();
  delayed->forward_one(ctx, given(rig, "x", DType::f64), nullptr);
  EXPECT_TRUE(delayed->tables().empty());
}

// The codes round: the gradients are those of the product without rounding, within a step of e5m2 and e4m3.
TEST(Fp8Linear, AnAdapterComputesBesideTheProductsInFp8) {
  Rig rig(make_ops);
  const ModulePtr linear = make_linear(32, 24, false);
  apply_fp8(linear, {});
  apply_lora(linear, {.patterns = {}, .rank = 2});
  rig.materialize(*linear, DType::f64);
  put(linear->parameters()[0]->value, reference().values("w"));
  const Tensor x = given(rig, "x", DType::f64);
  Context ctx = rig.context();
  Vector y = get(linear->forward_one(ctx, x, nullptr));
  const Vector a = get(linear->parameters()[1]->value), b = get(linear->parameters()[2]->value),
               from = get(x);
  for (size_t t = 0; t < 16; ++t)
    for (size_t r = 0; r < 2; ++r) {
      double low = 0;
      for (size_t i = 0; i < 32; ++i) low += from[t * 32 + i] * a[r * 32 + i];
      for (size_t o = 0; o < 24; ++o) y[t * 24 + o] -= 4 * low * b[o * 2 + r];
    }
  EXPECT_LE(normwise(y, reference().values("tensor.y")), 1e-10);
}

ModulePtr small_decoder() {
  DecoderOptions options;
  options.layers = 2;
  options.dim = 32;
  options.heads = 4;
  return make_decoder(options);
}

std::vector<std::string> in_fp8(const ModulePtr& root) {
  std::vector<std::string> paths;
  for (const NamedModule& named : named_modules(root))
    if (const auto* linear = dynamic_cast<const Linear*>(named.module.get()))
      if (linear->fp8() != nullptr) paths.push_back(named.path);
  return paths;
}

TEST(Fp8Apply, PatternsChooseLayers) {
  const ModulePtr some = small_decoder(), all = small_decoder();
  apply_fp8(some, {.patterns = {"model.layers.1.mlp.*", "**.0.self_attn.q_proj"}});
  EXPECT_EQ(in_fp8(some),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.gate_proj",
                                      "model.layers.1.mlp.up_proj", "model.layers.1.mlp.down_proj"}));
  apply_fp8(some, {.patterns = {"**.1.self_attn.o_proj"}, .scaling = Fp8Scaling::row});
  EXPECT_EQ(in_fp8(some).size(), 5u);
  apply_fp8(all, {});
  EXPECT_EQ(in_fp8(all).size(), 14u);
}

TEST(Fp8Apply, RefusesWhatItCannotDo) {
  const ModulePtr model = small_decoder();
  const auto refusal = [&](Code code, const Fp8Options& options) {
    return expect_error(code, [&] { apply_fp8(model, options); });
  };
  expect_text(refusal(Code::not_found, {.patterns = {"**.x_proj"}}),
              {"fp8", "no module matches \"**.x_proj\""});
  expect_text(refusal(Code::invalid_argument, {.patterns = {"model.layers.*.mlp"}}),
              {"model.layers.0.mlp, a Mlp", "only a Linear computes in FP8"});
  expect_text(refusal(Code::invalid_argument, {.patterns = {"lm_head"}}),
              {"lm_head, whose weight its", "it cannot compute in FP8"});
  expect_text(refusal(Code::invalid_argument, {.patterns = {}, .history = 0}), {"history is 0"});
  expect_text(refusal(Code::invalid_argument, {.patterns = {}, .scaling = static_cast<Fp8Scaling>(3)}),
              {"scaling 3"});
  EXPECT_TRUE(in_fp8(model).empty());
  apply_fp8(model, {.patterns = {"**.up_proj"}});
  expect_text(refusal(Code::invalid_state, {}), {"model.layers.0.mlp.up_proj", "already"});
}

TEST(Fp8Apply, AGpuTakesSizesThatAreMultiplesOf16AndNoF64) {
  Rig rig("meta:cuda");
  const auto check = [&](int64_t in, int64_t out, int64_t tokens, bool training, DType dtype = DType::f32,
                         bool trains_weight = true) {
    const ModulePtr linear = make_linear(in, out, false);
    apply_fp8(linear, {});
    assign_full_names(*linear);
    Context ctx = rig.context();
    ctx.training = training;
    linear->parameters()[0]->dtype = dtype;
    linear->parameters()[0]->trainable = trains_weight;
    const Spec x{dtype, {tokens, in}};
    linear->check_forward(ctx, {&x, 1});
  };
  check(32, 48, 16, true);
  check(32, 48, 1, false);
  check(32, 48, 15, true, DType::f32, false);  // an adapter's layer
  expect_text(expect_error(Code::not_supported, [&] { check(32, 48, 16, true, DType::f64); }),
              {"FP8", "in f64"});
  for (const auto& [in, out, tokens] : {std::array<int64_t, 3>{30, 48, 16}, {32, 40, 16}, {32, 48, 15}})
    expect_text(expect_error(Code::invalid_argument,
                             [&, in = in, out = out, tokens = tokens] { check(in, out, tokens, true); }),
                {"FP8", "multiple of 16"});
}

}  // namespace
}  // namespace gangway
