#include "nn/custom.h"

#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;
using Call = CustomBehaviour::Call;

// out0 = a * mask + p0 (mask i64), out1 = b * p1 (a scalar); counts its calls and its states.
struct Mixing : CustomBehaviour {
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec> inputs) override {
    if (wrong_count) return {inputs[0]};
    return {inputs[0], inputs[2]};
  }
  void forward(Call& call) override {
    ++forwards;
    call.state = new int(forwards);
    ++states;
    if (throws) fail(Code::caller, "no");
    const Vector a = get(call.inputs[0]), mask = get(call.inputs[1]), b = get(call.inputs[2]);
    const Vector p0 = get(call.parameters[0]->value), p1 = get(call.parameters[1]->value);
    Vector first = a, second = b;
    for (size_t i = 0; i < a.size(); ++i) first[i] = a[i] * mask[i] + p0[i % p0.size()];
    for (double& x : second) x *= p1[0];
    put(call.outputs[0], first);
    put(call.outputs[1], second);
  }
  void backward_input(Call& call) override {
    EXPECT_NE(call.state, nullptr);
    EXPECT_FALSE(call.input_grads[1]) << "an integer input has no gradient";
    const Vector mask = get(call.inputs[1]), p1 = get(call.parameters[1]->value);
    Vector da = grad(call, 0), db = grad(call, 1);
    for (size_t i = 0; i < da.size(); ++i) da[i] *= mask[i];
    for (double& x : db) x *= p1[0];
    put(call.input_grads[0], da);
    put(call.input_grads[2], db);
    if (!split) backward_weight(call);
  }
  bool has_backward_weight() const override { return split; }
  void backward_weight(Call& call) override {
    EXPECT_NE(call.state, nullptr);
    ++weights;
    const Vector d0 = grad(call, 0), d1 = grad(call, 1), b = get(call.inputs[2]);
    Vector g0 = get(call.parameters[0]->grad->tensor), g1 = get(call.parameters[1]->grad->tensor);
    for (size_t i = 0; i < d0.size(); ++i) g0[i % g0.size()] += d0[i];
    for (size_t i = 0; i < d1.size(); ++i) g1[0] += d1[i] * b[i];
    put(call.parameters[0]->grad->tensor, g0);
    put(call.parameters[1]->grad->tensor, g1);
  }
  void free_state(void* state) noexcept override {
    --states;
    delete static_cast<int*>(state);
  }
  bool accepts(DType compute) const override { return compute == DType::f64; }

  static Vector grad(Call& call, size_t i) {
    return call.output_grads[i] ? get(call.output_grads[i])
                                : Vector(static_cast<size_t>(call.outputs[i].count()));
  }

  bool split = false, throws = false, wrong_count = false;
  int forwards = 0, weights = 0, states = 0;
};

CustomOptions mixing_options() {
  CustomOptions o;
  o.name = "Mixing";
  o.input_count = 3;
  o.output_count = 2;
  o.parameters = {{"offset", Shape{3}, Init::normal(1)}, {"factor", Shape{1}, Init::ones()}};
  return o;
}

struct CustomTest : testing::TestWithParam<bool> {
  CustomTest() { behaviour->split = GetParam(); }
  Rig rig;
  std::shared_ptr<Mixing> behaviour = std::make_shared<Mixing>();
  ModulePtr module = make_custom(mixing_options(), behaviour);
  Values inputs = {rig.normal({2, 3}, 1), rig.ids({2, 3}, 2, 2), rig.normal({4}, 3)};
};
INSTANTIATE_TEST_SUITE_P(OneOrTwoHalves, CustomTest, testing::Bool());

TEST_P(CustomTest, GradientsAgreeWithDifferences) {
  rig.materialize(*module, DType::f64);
  expect_gradients(rig, *module, inputs);
  EXPECT_EQ(behaviour->states, 0) << "every state was freed once";
}

TEST_P(CustomTest, StateLivesUntilTheLastHalf) {
  rig.materialize(*module, DType::f64);
  Context ctx = rig.context();
  Frame frame(rig.device->allocator());
  module->forward(ctx, inputs, &frame);
  EXPECT_EQ(behaviour->states, 1);
  const Tensor dy[] = {rig.normal({2, 3}, 4), Tensor()};
  module->backward(ctx, dy, frame);
  EXPECT_EQ(behaviour->states, GetParam() ? 1 : 0);
  frame.run_weight_gradients(ctx);
  EXPECT_EQ(behaviour->states, 0);
  EXPECT_EQ(behaviour->weights, 1);
  EXPECT_EQ(get(module->parameters()[1]->grad->tensor), Vector{0}) << "an absent gradient is zero";
}

TEST_P(CustomTest, StateIsFreedWithoutABackward) {
  rig.materialize(*module, DType::f64);
  Context ctx = rig.context();
  ctx.training = true;
  module->forward(ctx, inputs, nullptr);
  EXPECT_EQ(behaviour->states, 0) << "no frame: it will be recomputed";
  {
    Frame frame(rig.device->allocator());
    module->forward(ctx, inputs, &frame);
    EXPECT_EQ(behaviour->states, 1);
    frame.reset();
    EXPECT_EQ(behaviour->states, 0);
    module->forward(ctx, inputs, &frame);
    expect_error(Code::invalid_state, [&] { module->forward(ctx, inputs, &frame); });
    EXPECT_EQ(behaviour->states, 1);
  }
  EXPECT_EQ(behaviour->states, 0);
  behaviour->throws = true;
  Frame frame(rig.device->allocator());
  expect_error(Code::caller, [&] { module->forward(ctx, inputs, &frame); });
  EXPECT_EQ(behaviour->states, 0);
}

TEST_P(CustomTest, FrameKeepsTheBehaviourForItsState) {
  rig.materialize(*module, DType::f64);
  Context ctx = rig.context();
  Frame frame(rig.device->allocator());
  module->forward(ctx, inputs, &frame);
  Mixing* watched = behaviour.get();
  behaviour.reset();
  module.reset();
  EXPECT_EQ(watched->states, 1);
}

TEST_P(CustomTest, SecondStepAddsToTheGradients) {
  rig.materialize(*module, DType::f64);
  Context ctx = rig.context();
  const Tensor dy[] = {rig.normal({2, 3}, 4), rig.normal({4}, 5)};
  Vector once;
  for (int i = 0; i < 2; ++i) {
    Frame frame(rig.device->allocator());
    module->forward(ctx, inputs, &frame);
    module->backward(ctx, dy, frame);
    frame.run_weight_gradients(ctx);
    if (i == 0) once = get(module->parameters()[0]->grad->tensor);
  }
  const Vector twice = get(module->parameters()[0]->grad->tensor);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * once[i]);
}

TEST_P(CustomTest, RefusalsNameTheModuleAndTheNumbers) {
  rig.materialize(*module, DType::f64);
  Context ctx = rig.context();
  expect_text(expect_error(Code::invalid_argument,
                           [&] {
                             module->forward(ctx, {inputs.data(), 2}, nullptr);
                           }),
              {"Mixing", "takes 3 inputs, got 2"});
  behaviour->wrong_count = true;
  expect_text(expect_error(Code::invalid_argument, [&] { module->forward(ctx, inputs, nullptr); }),
              {"Mixing", "gave 1 outputs, 2 were declared"});
  CustomOptions none = mixing_options();
  none.output_count = 0;
  expect_text(expect_error(Code::invalid_argument, [&] { make_custom(none, behaviour); }),
              {"output_count is 0"});
}

TEST_P(CustomTest, MetaCallsShapesOnly) {
  Rig meta("meta");
  materialize(*module, *meta.ops, 1);
  Context ctx = meta.context();
  Frame frame(meta.device->allocator());
  const Values given = {meta.empty(DType::f32, {2, 3}), meta.empty(DType::i64, {2, 3}),
                        meta.empty(DType::f32, {4})};
  const Values out = module->forward(ctx, given, &frame);
  EXPECT_EQ(out[1].shape(), Shape{4});
  EXPECT_EQ(module->backward(ctx, out, frame)[0].shape(), (Shape{2, 3}));
  frame.run_weight_gradients(ctx);
  EXPECT_EQ(behaviour->forwards, 0);
}

// x + child(x): the children's forward and backward are called from inside with the same context and frame.
struct Residual : CustomBehaviour {
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec> inputs) override { return {inputs[0]}; }
  void forward(Call& call) override {
    const Tensor y = call.module.child(0).forward_one(call.ctx, call.inputs[0], call.frame);
    put(call.outputs[0], get(call.inputs[0]));
    call.ctx.ops.add(y, 1, call.outputs[0], call.ctx.stream);
  }
  void backward_input(Call& call) override {
    const Tensor dx = call.module.child(0).backward_one(call.ctx, call.output_grads[0], *call.frame);
    put(call.input_grads[0], get(call.output_grads[0]));
    call.ctx.ops.add(dx, 1, call.input_grads[0], call.ctx.stream);
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }
};

TEST(Custom, ChildrenAreCalledFromInside) {
  Rig rig;
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    CustomOptions o;
    o.children = {
        {"inner", make_sequential({make_rmsnorm(4, 1e-4), make_linear(4, 4, true), make_mlp(4, 5, false)})}};
    const ModulePtr module = make_custom(o, std::make_shared<Residual>());
    rig.materialize(*module, DType::f64);
    EXPECT_EQ(named_parameters(*module)[1].name, "inner.1.weight");
    expect_gradients(rig, *module, {rig.normal({3, 4}, 1)}, recompute);
    EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
  }
}

// Full recomputation: forward keeps the input only, backward runs the child again in a nested frame.
class Checkpoint final : public Module {
 public:
  explicit Checkpoint(ModulePtr inner) { add_child("", std::move(inner)); }
  const char* kind() const override { return "Checkpoint"; }
  bool is_wrapper() const override { return true; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    if (frame == nullptr) return child(0).forward(ctx, inputs, nullptr);
    frame->slots().save(*this, 0, inputs[0]);
    StackScope scope(ctx.temporaries);
    const Tensor inner = child(0).forward_one(ctx, inputs[0], nullptr);
    const Tensor y = frame->allocate(inner.dtype(), inner.shape());
    put(y, get(inner));
    return {y};
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor x = frame.slots().load(ctx, *this, 0);
    const Tensor dx = frame.allocate_gradient(x.dtype(), x.shape());
    Frame& nested = frame.nest();
    ctx.recomputing = true;
    child(0).forward_one(ctx, x, &nested);
    ctx.recomputing = false;
    put(dx, get(child(0).backward_one(ctx, dy[0], nested)));
    return {dx};
  }
};

TEST(Custom, RecomputedInANestedFrameGivesTheSameBits) {
  std::vector<std::vector<Vector>> results;
  for (bool checkpoint : {false, true})
    for (bool defer : {false, true}) {
      Rig rig;
      AttentionOptions attention;
      attention.dim = 4;
      attention.heads = 2;
      std::vector<ModulePtr> modules;
      for (int i = 0; i < 3; ++i) {
        CustomOptions o;
        o.children = {{"inner", make_block({attention, 5})}};
        ModulePtr module = make_custom(o, std::make_shared<Residual>());
        modules.push_back(checkpoint ? std::make_shared<Checkpoint>(module) : module);
      }
      const ModulePtr chain = make_sequential(modules);
      rig.materialize(*chain, DType::f32);
      Context ctx = rig.context();
      ctx.training = true;
      ctx.defer_weight = defer;
      Frame frame(rig.device->allocator());
      chain->forward_one(ctx, rig.normal({2, 3, 4}, 1, DType::f32), &frame);
      std::vector<Vector> all = {get(chain->backward_one(ctx, rig.normal({2, 3, 4}, 2, DType::f32), frame))};
      EXPECT_EQ(frame.pending_weight() > 0, defer);
      frame.run_weight_gradients(ctx);
      for (const NamedParameter& p : named_parameters(*chain)) all.push_back(get(p.parameter->grad->tensor));
      results.push_back(all);
    }
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]);
}

}  // namespace
}  // namespace gangway
