// Manual forward and backward over cp, and batches without labels: ranks of cp give the same whole rows.
#include "base/philox.h"
#include "nn/custom.h"
#include "parallel/context/balance.h"
#include "support/host_memory.h"
#include "train/manual.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::error_of;
using test::HostMemory;
using test::Reference;

GangsPtr gangs_of(Gang& root, int cp) {
  MeshOptions mesh;
  mesh.cp = cp;
  return create_gangs(root.shared_from_this(), mesh);
}

std::shared_ptr<Model> model_of(Gang& root, int cp, const ModulePtr& module) {
  auto model = std::make_shared<Model>(module, gangs_of(root, cp));
  model->build().parallelize(test::parallel(Strategy::full_shard));
  return model;
}

std::shared_ptr<Model> llama_of(Gang& root, int cp, const Reference& reference) {
  auto model = model_of(root, cp, make_decoder(reference.config));
  test::assign_initial(*model, reference);
  return model;
}

std::vector<double> values_of(const Tensor& tensor) {
  const HostMemory host(tensor);
  return {host.data<double>(), host.data<double>() + tensor.count()};
}

Tensor tokens_of(Model& model, const Reference& reference, const char* name = "tokens") {
  const Shape shape{reference.batch(), reference.sequence()};
  return test::tensor_of(model, DType::i64, shape, reference.rows(name, 0, reference.batch(), 0).data());
}

// Sums of losses, weight, and gradients of every rank count equal those of one rank.
TEST(ManualContext, WholeRowsGiveTheLossAndTheGradientsOfTheReference) {
  const Reference reference("llama_parity");
  for (const int cp : {1, 2, 4})
    test::run_ranks(cp, [&](Gang& root) {
      const auto model = llama_of(root, cp, reference);
      Stream& stream = model->device().stream();
      ManualFrame frame(model, {.loss_scale = 1 / static_cast<double>(reference.weight())});
      const Values inputs = {tokens_of(*model, reference), tokens_of(*model, reference, "labels")};
      const Values loss = manual_forward(*model, inputs, &frame, stream);
      EXPECT_EQ(values_of(loss.at(1)), std::vector<double>{static_cast<double>(reference.weight())});
      EXPECT_NEAR(values_of(loss.at(0))[0] / static_cast<double>(reference.weight()),
                  reference.values("adamw.losses")[0], 1e-10);
      manual_backward(frame, {}, stream);
      for (const NamedParameter& p : model->inspect().parameters())
        EXPECT_LT(
            test::distance(test::gathered_gradient(*model, *p.parameter), reference.values("grad." + p.name)),
            1e-10)
            << "cp " << cp << ", " << p.name;
    });
}

TEST(ManualContext, LogitsOfAnEvaluationAreWholeAndInTheOrderOfTheSequence) {
  const Reference reference("llama_parity");
  std::vector<double> alone;
  for (const int cp : {1, 2, 4})
    test::run_ranks(cp, [&](Gang& root) {
      const auto model = llama_of(root, cp, reference);
      const Tensor tokens = tokens_of(*model, reference);
      const Values logits = manual_forward(*model, {&tokens, 1}, nullptr, model->device().stream());
      ASSERT_EQ(logits.at(0).dim(1), reference.sequence());
      if (cp == 1) alone = values_of(logits[0]);
      EXPECT_LT(test::distance(values_of(logits[0]), alone), 1e-12) << cp;
    });
}

struct LinearRun {
  std::vector<double> y, dx, gradient;
};

// Context parallelism takes no model without attention.
ModulePtr attention() {
  AttentionOptions options;
  options.dim = 8;
  options.heads = options.kv_heads = 2;
  options.deviation = 0.5;
  return make_attention(options);
}

LinearRun run_linear(Gang& root, int cp, bool parts) {
  const auto model = model_of(
      root, cp, make_sequential({make_linear(3, 8, true, 0.5), attention(), make_linear(8, 2, true, 0.5)}));
  Stream& stream = model->device().stream();
  const auto tensor = [&](int64_t width, uint64_t key) {
    std::vector<double> values(static_cast<size_t>(2 * 8 * width));
    philox_normals(key, 0, values.size(), 1, values.data());
    const Tensor whole = test::tensor_of(*model, DType::f64, Shape{2, 8, width}, values.data());
    if (!parts) return whole;
    const Tensor part = Tensor::allocate(model->device().allocator(), DType::f64, Shape{2, 8 / cp, width});
    split_sequence(model->ops(), whole, part, 1, root.rank(), cp, stream);
    return part;
  };
  ManualFrame frame(model, {.sequence_parts = parts});
  const Tensor x = tensor(3, 1), dy = tensor(2, 2);
  const Values y = manual_forward(*model, {&x, 1}, &frame, stream);
  const Values dx = manual_backward(frame, {&dy, 1}, stream);
  return {values_of(y.at(0)), values_of(dx.at(0)),
          test::gathered_gradient(*model, *model->inspect().parameters()[0].parameter)};
}

TEST(ManualContext, GradientsOfOutputsAndInputsAreWhole) {
  LinearRun alone;
  for (const int cp : {1, 2, 4})
    test::run_ranks(cp, [&](Gang& root) {
      const LinearRun run = run_linear(root, cp, false);
      if (cp == 1) alone = run;
      EXPECT_LT(test::distance(run.y, alone.y), 1e-12);
      EXPECT_LT(test::distance(run.dx, alone.dx), 1e-12);
      EXPECT_LT(test::distance(run.gradient, alone.gradient), 1e-12);
    });
}

TEST(ManualContext, AFrameWithSequencePartsTakesAndGivesThePartsOfItsRank) {
  LinearRun alone;
  test::run_ranks(1, [&](Gang& root) { alone = run_linear(root, 1, false); });
  test::run_ranks(2, [&](Gang& root) {
    const LinearRun run = run_linear(root, 2, true);
    EXPECT_EQ(run.y.size(), alone.y.size() / 2);
    EXPECT_LT(test::distance(run.gradient, alone.gradient), 1e-12);
    // Row 0 of rank 0 begins with the first two tokens of the sequence, that of rank 1 with the next two.
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(run.y[i], alone.y[static_cast<size_t>(root.rank()) * 4 + i], 1e-12);
  });
}

TEST(ManualContext, RowsThatCannotBeCutAndRowsThatDifferAreRefusedOnAllRanks) {
  const Reference reference("llama_small");  // of at most 12 tokens
  test::run_ranks(2, [&](Gang& root) {
    const auto model = llama_of(root, 2, reference);
    const auto message = [&](int64_t tokens, int64_t id) {
      const std::vector<int64_t> ids(static_cast<size_t>(2 * tokens), id);
      const Tensor input = test::tensor_of(*model, DType::i64, Shape{2, tokens}, ids.data());
      return error_of([&] {
               manual_forward(*model, {&input, 1}, nullptr, model->device().stream());
             })
          .message();
    };
    EXPECT_NE(message(10, 1).find("a sequence has 10 tokens"), std::string::npos);
    EXPECT_NE(message(16, 1).find("longer than max_position_embeddings 12"), std::string::npos);
    EXPECT_NE(message(12, root.rank()).find("ranks 0 and 1 differ only over cp, but their rows differ"),
              std::string::npos);
    root.barrier();
  });
}

// Sums 1/2 (w - y)^2 over all targets; the weight is their number.
class Distance final : public CustomBehaviour, public std::enable_shared_from_this<Distance> {
 public:
  ModulePtr module() {
    CustomOptions options;
    options.name = "Distance";
    options.input_count = 2;
    options.output_count = 2;
    options.parameters = {{"weight", Shape{1}, Init::ones()}};
    options.children = {{"attention", attention()}};  // which this loss does not run
    return make_custom(options, shared_from_this());
  }
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec>) override {
    return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  }
  void forward(Call& call) override {
    double sum = 0;
    for (const double y : values_of(call.inputs[1])) sum += 0.5 * (weight(call) - y) * (weight(call) - y);
    *call.outputs[0].data<double>() = sum;
    *call.outputs[1].data<double>() = static_cast<double>(call.inputs[1].count());
  }
  void backward_input(Call& call) override {
    for (const double y : values_of(call.inputs[1]))
      *call.parameters[0]->grad->tensor.data<double>() += call.ctx.loss_scale * (weight(call) - y);
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }

 private:
  static double weight(const Call& call) { return *call.parameters[0]->value.data<double>(); }
};

// One text asked for a weight, and another one for none.
TEST(ManualContext, ACustomLossWithFloatTargetsTrainsByTheWeightOfWholeRows) {
  for (const int cp : {1, 2})
    test::run_ranks(cp, [&](Gang& root) {
      const auto behaviour = std::make_shared<Distance>();
      const auto model = model_of(root, cp, behaviour->module());
      OptimizerOptions options;
      options.lr = 0.5;
      const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), options, model->ops());
      std::vector<double> y(2 * 8);
      philox_normals(5, 0, y.size(), 1, y.data());
      double sum = 0, loss = 0;
      for (const double target : y) sum += target, loss += 0.5 * (1 - target) * (1 - target);
      const std::vector<int64_t> ids(y.size(), 0);
      Batch batch;
      batch.inputs = {test::tensor_of(*model, DType::i64, Shape{2, 8}, ids.data())};
      batch.targets = {test::tensor_of(*model, DType::f64, Shape{2, 8}, y.data())};
      const auto step = [&] {
        return train_step(*model, optimizer.get(), batch, StepOptions{}, model->device().stream());
      };
      EXPECT_NE(error_of(step).message().find("targets[0] is f64, but labels are i64; for other targets "
                                              "batch.weight says how many items count"),
                std::string::npos);
      batch.weight = 15;
      EXPECT_NE(error_of(step).message().find("weight 16"), std::string::npos);
      batch.weight = 16;
      const StepResult result = step();
      EXPECT_EQ(result.weight, 16);
      EXPECT_NEAR(result.loss, loss / 16, 1e-13);
      EXPECT_NEAR(test::gathered(*model, *model->inspect().parameters()[0].parameter)[0],
                  1 - 0.5 * (1 - sum / 16), 1e-13);
    });
}

}  // namespace
}  // namespace gangway
