// Several frames in flight: each backward uses what its own forward saved.
#include "parallel/recompute.h"
#include "parallel/reference_run.h"

namespace gangway::test {
namespace {

constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};

// Runs two forwards before the first backward, as a pipeline schedule does.
TEST(Frames, InFlightGiveTheSameGradients) {
  const ReferenceRun reference{
      [] {
        return make_sequential({make_linear(3, 5, true, 0.5), make_linear(5, 2, true, 0.5)});
      },
      Shape{4, 3}};
  const auto want = reference.on_one_device(2, 2);
  for (const Strategy strategy : kStrategies)
    for (const bool regions : {true, false})
      run_ranks(2, [&](Gang& root) {
        Model model(reference.make(), mesh_of(root));
        model.fsdp().use_regions(regions);
        ParallelOptions options;
        options.shard.strategy = strategy;
        options.master_dtype = DType::f64;
        options.seed = reference.seed;
        model.build().parallelize(options);
        Context ctx = model.run().context(model.device().stream());
        Values outputs;
        for (int m = 0; m < 2; ++m) {
          const Tensor x = reference.input_of(model.device(), root.rank(), m);
          outputs.push_back(model.run().forward(ctx, {&x, 1}, &model.frame(static_cast<size_t>(m)))[0]);
        }
        for (int m = 1; m >= 0; --m) {
          Frame& frame = model.frame(static_cast<size_t>(m));
          model.run().set_is_last_backward(m == 0);
          const Tensor dy = reference.gradient_of(frame, outputs[static_cast<size_t>(m)], root.rank(), m);
          model.run().backward(ctx, {&dy, 1}, frame);
        }
        expect_near(reference.gradients(model), want, 1e-12);
      });
}

struct Pass {
  DType output;    // dtype of y
  DType gradient;  // of dx
  Vector dx;
};

// Runs forward with an input of `dtype`. The model rounds the input and the parameters to bf16.
Tensor forward(Model& model, DType dtype, int64_t rows, size_t frame) {
  Context ctx = model.run().context(model.device().stream());
  const Vector values = random_vector(static_cast<size_t>(3 * rows), 7);
  const Tensor x = make(model.device(), dtype, Shape{rows, 3}, values);
  return model.run().forward(ctx, {&x, 1}, &model.frame(frame))[0];
}

Pass backward(Model& model, const Tensor& y, size_t at) {
  Context ctx = model.run().context(model.device().stream());
  Frame& frame = model.frame(at);
  const Tensor dy = frame.allocate_gradient(y.dtype(), y.shape());
  put(dy, random_vector(static_cast<size_t>(y.count()), 8));
  const Tensor dx = model.run().backward(ctx, {&dy, 1}, frame)[0];
  const Pass pass{y.dtype(), dx.dtype(), get(dx)};
  frame.reset();
  return pass;
}

// One frame and an evaluation, or two frames, have inputs of different dtypes. Each backward gives gradients
// of its own dtypes.
TEST(Frames, InFlightMayHaveInputsOfDifferentDtypes) {
  for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::full})
    run_ranks(2, [&](Gang& root) {
      Model model(make_sequential({make_linear(3, 5, true, 0.5), make_linear(5, 2, true, 0.5)}),
                  mesh_of(root));
      ParallelOptions options;
      options.shard.param_dtype = DType::bf16;
      options.shard.output_dtype = DType::f32;
      options.recompute.kind = recompute;
      model.build().parallelize(options);
      std::vector<Pass> alone;
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
        alone.push_back(backward(model, forward(model, dtype, 4, 0), 0));
      EXPECT_EQ(alone[0].gradient, DType::f32);
      EXPECT_EQ(alone[1].gradient, DType::f64);
      EXPECT_EQ(alone[2].gradient, DType::bf16);

      const Tensor y0 = forward(model, DType::f32, 4, 0), y1 = forward(model, DType::f64, 4, 1);
      Context plain = model.run().context(model.device().stream());
      const Tensor x = make(model.device(), DType::bf16, Shape{2, 3}, random_vector(6, 9));
      model.run().forward(plain, {&x, 1}, nullptr);
      model.temporaries().reset();
      for (const auto& [y, at] : {std::pair{y0, size_t{0}}, std::pair{y1, size_t{1}}}) {
        const Pass pass = backward(model, y, at);
        EXPECT_EQ(pass.output, alone[at].output);
        EXPECT_EQ(pass.gradient, alone[at].gradient) << "frame " << at;
        EXPECT_EQ(pass.dx, alone[at].dx) << "frame " << at;
      }
      model.run().finish_gradients(model.device().stream());
    });
}

// y is the sum of any number of inputs.
class Sum final : public Module {
 public:
  const char* kind() const override { return "Sum"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor y = make_output(ctx, frame, inputs[0].dtype(), inputs[0].shape());
    ctx.ops.fill(y, 0, ctx.stream);
    for (const Tensor& x : inputs) ctx.ops.add(x, 1, y, ctx.stream);
    if (frame != nullptr) frame->seen(*this).inputs = dtypes_of(inputs);
    return {y};
  }
  Values backward(Context&, std::span<const Tensor> dy, Frame& frame) override {
    return Values(frame.seen(*this).inputs.size(), dy[0]);
  }
};

TEST(Frames, InFlightMayHaveDifferentNumbersOfRecomputedInputs) {
  const std::shared_ptr<Device> device = make_device("cpu");
  const std::unique_ptr<Ops> ops = make_ops(device);
  Stack temporaries(device->allocator());
  Frame first(device->allocator()), second(device->allocator());
  Context ctx{.ops = *ops, .stream = device->stream(), .temporaries = temporaries};
  const ModulePtr module = make_recompute(std::make_shared<Sum>());
  const Tensor x = make(*device, DType::f64, Shape{2}, {1, 2});
  const Tensor three[] = {x, x, x};
  EXPECT_EQ(get(module->forward(ctx, three, &first)[0]), (Vector{3, 6}));
  module->forward(ctx, {three, 1}, &second);
  EXPECT_EQ(module->backward(ctx, {&x, 1}, first).size(), 3u);
  EXPECT_EQ(module->backward(ctx, {&x, 1}, second).size(), 1u);
}

}  // namespace
}  // namespace gangway::test
