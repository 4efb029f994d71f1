// A step over a mesh against the same step on one rank: equal where the library is right, and the name of the
// module where an error was planted.
#include "train/verify.h"
#include "nn/custom.h"
#include "nn/small_llama.h"
#include "train/train_testing.h"

namespace gangway::test {
namespace {

enum class Plant { nothing, own_gradient, input_gradient, output, nan_output, nan_gradient, nan_everywhere };

// y = s x. On the second data rank it has the planted error.
class Scale final : public CustomBehaviour {
 public:
  explicit Scale(Plant plant) : plant_(plant) {}

  Specs shapes(Custom&, Context&, std::span<const Spec> inputs) override { return {inputs[0]}; }
  void forward(Call& call) override {
    double factor = copy_out<double>(call.parameters[0]->value)[0] * error(call, Plant::output);
    if (plant_ == Plant::nan_everywhere || (plant_ == Plant::nan_output && call.ctx.data_index == 1))
      factor = NAN;
    copy_in(call.outputs[0], times(call.inputs[0], factor));
  }
  void backward_input(Call& call) override {
    const double s = copy_out<double>(call.parameters[0]->value)[0];
    const std::vector<double> x = copy_out<double>(call.inputs[0]),
                              dy = copy_out<double>(call.output_grads[0]);
    if (call.input_grads[0])
      copy_in(call.input_grads[0], times(call.output_grads[0], s * error(call, Plant::input_gradient)));
    std::vector<double> gradient = copy_out<double>(call.parameters[0]->grad->tensor);
    for (size_t i = 0; i < x.size(); ++i) gradient[0] += x[i] * dy[i] * error(call, Plant::own_gradient);
    if (plant_ == Plant::nan_gradient && call.ctx.data_index == 1) gradient[0] = NAN;
    copy_in(call.parameters[0]->grad->tensor, gradient);
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType dtype) const override { return dtype == DType::f64; }

 private:
  double error(const Call& call, Plant plant) const {
    return plant_ == plant && call.ctx.data_index == 1 ? 2 : 1;
  }
  static std::vector<double> times(const Tensor& x, double factor) {
    std::vector<double> y = copy_out<double>(x);
    for (double& value : y) value *= factor;
    return y;
  }

  const Plant plant_;
};

// The sum of x^2 / 2, and the number of rows.
class HalfSquare final : public CustomBehaviour {
 public:
  Specs shapes(Custom&, Context&, std::span<const Spec>) override {
    return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  }
  void forward(Call& call) override {
    double sum = 0;
    for (const double x : copy_out<double>(call.inputs[0])) sum += x * x / 2;
    copy_in<double>(call.outputs[0], {sum});
    copy_in<double>(call.outputs[1], {static_cast<double>(call.inputs[0].dim(0))});
  }
  void backward_input(Call& call) override {
    std::vector<double> dx = copy_out<double>(call.inputs[0]);
    for (double& x : dx) x *= call.ctx.loss_scale;
    copy_in(call.input_grads[0], dx);
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }
};

// A module of the caller's own that runs its children itself.
class Whole final : public CustomBehaviour {
 public:
  Specs shapes(Custom&, Context&, std::span<const Spec>) override {
    return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  }
  void forward(Call& call) override {
    Values x(call.inputs.begin(), call.inputs.end());
    for (const Module::Child& child : call.module.children())
      x = child.module->forward(call.ctx, x, call.frame);
    for (size_t i = 0; i < 2; ++i) copy_in(call.outputs[i], copy_out<double>(x[i]));
  }
  void backward_input(Call& call) override {
    Values dy;
    for (size_t i = call.module.children().size(); i-- > 0;)
      dy = call.module.child(i).backward(call.ctx, dy, *call.frame);
    if (call.input_grads[0]) copy_in(call.input_grads[0], copy_out<double>(dy[0]));
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }
};

ModulePtr planted(Plant plant, bool custom = false) {
  CustomOptions scale, loss;
  scale.name = "Scale";
  scale.parameters = {{"factor", Shape{1}, Init::ones()}};
  loss.name = "HalfSquare";
  loss.output_count = 2;
  const std::vector<ModulePtr> parts = {
      make_linear(3, 4, false), make_custom(scale, std::make_shared<Scale>(plant)), make_linear(4, 2, false),
      make_custom(loss, std::make_shared<HalfSquare>())};
  if (!custom) return make_sequential(parts);
  CustomOptions whole;
  whole.name = "Whole";
  whole.output_count = 2;
  whole.children = {{"up", parts[0]}, {"act", parts[1]}, {"down", parts[2]}, {"loss", parts[3]}};
  return make_custom(whole, std::make_shared<Whole>());
}

VerifyResult verify_planted(Plant plant, bool custom = false) {
  VerifyResult result;
  run_ranks(2, [&](Gang& root) {
    std::vector<double> x;
    for (int i = 0; i < 6; ++i) x.push_back(0.3 * (i + 1) - root.rank());
    const Tensor rows = Tensor::allocate(root.device().allocator(), DType::f64, Shape{2, 3});
    copy_in(rows, x);
    Batch batch;
    batch.inputs = {rows};
    batch.weight = 2;
    const VerifyResult own = verify(make_gangs(root), [&] { return planted(plant, custom); }, batch, {});
    if (root.rank() == 1) result = own;
  });
  return result;
}

TEST(Verify, OfAModuleWithoutAnErrorFindsNothing) {
  const VerifyResult result = verify_planted(Plant::nothing);
  EXPECT_EQ(result.refusal, "");
  EXPECT_EQ(result.parameters, 3u);
  EXPECT_GT(result.grad_norm, 0);
}

TEST(Verify, NamesTheParameterWhoseGradientIsWrong) {
  const VerifyResult result = verify_planted(Plant::own_gradient);
  EXPECT_EQ(result.parameter, "1.factor");
  EXPECT_EQ(result.differing, 1u);
  EXPECT_GT(result.difference, 0.01);
  EXPECT_NE(result.refusal.find("the gradient of 1.factor differs by"), std::string::npos) << result.refusal;
}

TEST(Verify, NamesTheFirstModuleBehindAWrongInputGradient) {
  const VerifyResult result = verify_planted(Plant::input_gradient);
  EXPECT_EQ(result.parameter, "0.weight");
  EXPECT_EQ(result.differing, 1u);
}

TEST(Verify, SaysBothLossesWhereTheForwardIsWrong) {
  const VerifyResult result = verify_planted(Plant::output);
  EXPECT_NE(result.loss, result.mesh_loss);
  EXPECT_EQ(result.parameter, "2.weight");
  EXPECT_EQ(result.differing, 3u);
  EXPECT_NE(result.refusal.find(text("the loss is ", result.mesh_loss, ", and ", result.loss)),
            std::string::npos)
      << result.refusal;
}

TEST(Verify, NamesTheModuleInsideOneOfTheCallersOwn) {
  const VerifyResult result = verify_planted(Plant::output, true);
  EXPECT_EQ(result.module, "act");
  EXPECT_EQ(verify_planted(Plant::nothing, true).refusal, "");
}

TEST(Verify, NamesRankModuleAndParameterOfANaNThatTheMeshAloneHas) {
  for (const bool custom : {false, true}) {
    const VerifyResult result = verify_planted(Plant::nan_output, custom);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_TRUE(std::isnan(result.mesh_loss));
    for (const std::string& part :
         {text("is that of ", custom ? "act" : "1", " on rank 1"),
          text("the gradient of ", custom ? "down" : "2", ".weight is the first that is not finite")})
      EXPECT_NE(result.refusal.find(part), std::string::npos) << result.refusal;
  }
  const VerifyResult backward = verify_planted(Plant::nan_gradient);
  EXPECT_EQ(backward.parameter, "1.factor");
  EXPECT_EQ(backward.differing, 1u);
}

TEST(Verify, RefusesABatchWhoseLossIsNotFiniteOnOneRankEither) {
  run_ranks(2, [](Gang& root) {
    Batch batch;
    batch.inputs = {Tensor::allocate(root.device().allocator(), DType::f64, Shape{1, 3})};
    copy_in<double>(batch.inputs[0], {1, 2, 3});
    batch.weight = 1;
    const Error error =
        error_of([&] { verify(make_gangs(root), [] { return planted(Plant::nan_everywhere); }, batch, {}); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("on one rank, too; give another batch"), std::string::npos);
  });
}

TEST(Verify, OfDropoutFindsNothingWhereRanksHaveDifferentNumbersOfRows) {
  run_ranks(2, [](Gang& root) {
    const int64_t rows = root.rank() == 0 ? 1 : 3;
    Batch batch;
    batch.inputs = {Tensor::allocate(root.device().allocator(), DType::f64, Shape{rows, 3})};
    copy_in(batch.inputs[0], std::vector<double>(static_cast<size_t>(3 * rows), 0.5 + root.rank()));
    batch.weight = rows;
    const auto build = [] {
      CustomOptions loss;
      loss.name = "HalfSquare";
      loss.output_count = 2;
      return make_sequential({make_linear(3, 16, false), make_dropout(0.5), make_linear(16, 2, false),
                              make_custom(loss, std::make_shared<HalfSquare>())});
    };
    VerifyOptions options;
    options.microbatches = 2;
    EXPECT_EQ(verify(make_gangs(root), build, batch, options).refusal, "");
  });
}

struct MeshCase {
  const char* name;
  MeshOptions degrees;
  bool sequence_parallel = false;
  int ranks() const { return degrees.pp * degrees.dp_shard * degrees.cp * degrees.tp; }
};

// This rank's part of the data: rows of 8 tokens, and if it is packed, documents, positions and weights.
Batch rows_of(Gangs& gangs, bool packed) {
  Device& device = gangs.root()->device();
  int index = 0, count = 1;
  gangs.data_shard(&index, &count);
  const Shape shape{4 / count, 8};
  std::vector<int64_t> ids, documents, positions;
  std::vector<double> weights;
  for (int64_t i = 0; i < shape.count(); ++i) {
    ids.push_back((i * 5 + index * 7) % 17);
    documents.push_back(i % 8 < 3 + index ? 2 : 1);
    positions.push_back((i + index) % 8);
    weights.push_back(0.5 * static_cast<double>((i + index) % 3));
  }
  const auto tensor = [&](const auto& values, DType dtype) {
    const Tensor made = Tensor::allocate(device.allocator(), dtype, shape);
    copy_in(made, values);
    return made;
  };
  Batch batch;
  batch.inputs = {tensor(ids, DType::i64)};
  if (!packed) return batch;
  batch.documents = tensor(documents, DType::i64);
  batch.positions = tensor(positions, DType::i64);
  batch.token_weights = tensor(weights, DType::f64);
  return batch;
}

TEST(Verify, OfADecoderFindsNothingOnAnyMesh) {
  const DecoderOptions decoder = small_llama();
  for (const MeshCase& mesh :
       {MeshCase{"tp", {.dp_shard = 1, .tp = 2}, true}, MeshCase{"dp", {.dp_shard = 2}},
        MeshCase{"cp", {.dp_shard = 1, .cp = 2}}, MeshCase{"pp", {.pp = 2, .dp_shard = 1}}})
    run_ranks(mesh.ranks(), [&](Gang& root) {
      const GangsPtr gangs = create_gangs(root.shared_from_this(), mesh.degrees);
      VerifyOptions options;
      options.microbatches = mesh.degrees.pp;
      options.parallel.tensor.family.sequence_parallel = mesh.sequence_parallel;
      options.parallel.seed = 5;
      for (const bool packed : {false, true}) {
        const VerifyResult result = verify(
            gangs, [&] { return make_decoder(decoder); }, rows_of(*gangs, packed), options);
        EXPECT_EQ(result.refusal, "") << mesh.name << (packed ? ", packed" : "");
        EXPECT_EQ(result.parameters, 21u);
      }
    });
}

TEST(Verify, RefusesBatchesOfRanksThatDoNotGoTogether) {
  const DecoderOptions decoder = small_llama();
  const auto message = [&](void (*change)(Batch&)) {
    std::string text;
    run_ranks(2, [&](Gang& root) {
      const GangsPtr gangs = make_gangs(root);
      Batch batch = rows_of(*gangs, true);
      if (root.rank() == 1) change(batch);
      const Error error = error_of([&] { verify(gangs, [&] { return make_decoder(decoder); }, batch, {}); });
      EXPECT_EQ(error.code(), Code::invalid_argument);
      if (root.rank() == 0) text = error.message();
    });
    return text;
  };
  EXPECT_NE(message([](Batch& b) { b.documents = {}; }).find("1 and 0 tensors as batch.documents"),
            std::string::npos);
  EXPECT_NE(message([](Batch& b) { b.weight = 3; }).find("some ranks gave batch.weight = -1"),
            std::string::npos);
}

TEST(Verify, RefusesAFunctionThatBuildsAnotherModelEachTime) {
  run_ranks(1, [&](Gang& root) {
    int64_t layers = 0;
    const Error error = error_of([&] {
      verify(make_gangs(root),
             [&] {
               DecoderOptions decoder = small_llama();
               decoder.layers = ++layers;
               return make_decoder(decoder);
             },
             {}, {});
    });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("built another model the second time"), std::string::npos)
        << error.message();
  });
}

}  // namespace
}  // namespace gangway::test
