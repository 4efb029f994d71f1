// Gradients of readers of one input: the first reader makes the gradient, and the others add to it.
#include "nn/attention.h"
#include "nn/counting_ops.h"
#include "nn/fp8.h"
#include "nn/linear.h"
#include "nn/lora.h"
#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;

struct Kind {
  const char* name;
  bool bias;
  void (*change)(const ModulePtr& linear);
  double limit;  // of the difference in f32
};
constexpr Kind kKinds[] = {
    {"plain", false, [](const ModulePtr&) {}, 1e-6},
    {"bias", true, [](const ModulePtr&) {}, 1e-6},
    {"adapter", true, [](const ModulePtr& linear) { apply_lora(linear, {.patterns = {}, .rank = 4}); }, 1e-6},
    {"adapter with dropout", false,
     [](const ModulePtr& linear) { apply_lora(linear, {.patterns = {}, .rank = 4, .dropout = 0.5}); }, 1e-6},
    {"fp8", false, [](const ModulePtr& linear) { apply_fp8(linear, {}); }, 1e-6},
};

// The gradients of the input and of all parameters.
struct Gradients {
  Vector dx;
  std::vector<Vector> parameters;
};

// `before`: the gradient of another reader, to which the layer adds.
Gradients gradients_of(Rig& rig, Module& linear, const Tensor& x, const Tensor& dy, const Tensor& before) {
  Context ctx = rig.context();
  ctx.training = true;
  for (const ParameterPtr& p : linear.parameters())
    if (p->grad) p->grad->written = false;
  Frame frame(rig.device->allocator());
  linear.forward_one(ctx, x, &frame);
  Gradients all;
  if (before) {
    linear.add_backward_one(ctx, dy, frame, before);
    all.dx = get(before);
  } else {
    all.dx = get(linear.backward_one(ctx, dy, frame));
  }
  frame.run_weight_gradients(ctx);
  for (const ParameterPtr& p : linear.parameters())
    if (p->grad) all.parameters.push_back(get(p->grad->tensor));
  EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
  return all;
}

TEST(AddBackward, ALinearAddsWhatItsBackwardMakes) {
  Rig rig(&make_ops);
  for (const Kind& kind : kKinds)
    for (const DType dtype : {DType::f64, DType::f32})
      for (const int64_t tokens : {0, 1, 3, 130}) {
        if (kind.change != kKinds[0].change && tokens == 0) continue;
        const ModulePtr linear = make_linear(48, 32, kind.bias);
        assign_full_names(*linear);
        kind.change(linear);
        rig.materialize(*linear, dtype);
        const Tensor x = rig.normal({tokens, 48}, 1, dtype), dy = rig.normal({tokens, 32}, 2, dtype);
        const Tensor before = rig.normal({tokens, 48}, 3, dtype);
        Vector want = get(before);
        const Gradients alone = gradients_of(rig, *linear, x, dy, Tensor());
        const Gradients added = gradients_of(rig, *linear, x, dy, before);
        for (size_t i = 0; i < want.size(); ++i) want[i] += alone.dx[i];
        EXPECT_LE(normwise(added.dx, want), dtype == DType::f64 ? 1e-14 : kind.limit)
            << kind.name << ", " << tokens << " tokens";
        EXPECT_EQ(added.parameters, alone.parameters) << kind.name;
      }
}

// Products of the input half and of the weight half of each layer, and no additions.
TEST(AddBackward, AttentionAndAGatedMlpAddNoGradients) {
  Rig rig(counting);
  AttentionOptions options;
  options.dim = 32;
  options.heads = 4;
  options.kv_heads = 2;
  for (const auto& [module, layers] : {std::pair(make_attention(options), 4),
                                       std::pair(make_mlp(32, 48, false, 0.02, Activation::silu), 3)}) {
    assign_full_names(*module);
    rig.materialize(*module, DType::f32);
    Context ctx = rig.context();
    Frame frame(rig.device->allocator());
    module->forward_one(ctx, rig.normal({2, 8, 32}, 1, DType::f32), &frame);
    CountingOps::counts().clear();
    module->backward_one(ctx, rig.normal({2, 8, 32}, 2, DType::f32), frame);
    EXPECT_EQ(CountingOps::counts()["add"], 0) << module->kind();
    frame.run_weight_gradients(ctx);
    EXPECT_EQ(CountingOps::counts()["gemm"], 2 * layers) << module->kind();
  }
}

}  // namespace
}  // namespace gangway
