// Custom losses: formula, weight, gradients that are not finite, gradient norm, failures, and a caller's own
// loop.
#include <limits>

#include "nn/custom.h"
#include "train/rig.h"

namespace gangway {
namespace {

using test::error_of;
using test::Rig;
using test::square_rig;
using test::SquareLoss;

TEST(TrainStep, ACustomLossTrainsByItsFormula) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    test::run_ranks(3, [&](Gang& root) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = square_rig(root, loss, strategy);
      test::SquareReference reference(
          test::gathered(*rig.model, *rig.model->inspect().parameters()[0].parameter));
      for (int step = 0; step < 3; ++step) {
        double expected = 0;
        for (int r = 0; r < 3; ++r) expected += reference.add(SquareLoss::rows(r, step));
        StepOptions options;
        options.microbatches = 2;
        const StepResult result = rig.step(loss->batch(*rig.model, root.rank(), step), options);
        EXPECT_EQ(result.weight, reference.weight());
        EXPECT_NEAR(result.loss, expected / static_cast<double>(reference.weight()), 1e-13);
        reference.step(0.25);
        EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
      }
    });
}

TEST(TrainStep, AWeightThatDiffersFromTheBatchsIsRefusedOnAllRanks) {
  test::run_ranks(3, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = square_rig(root, loss);
    const std::vector<double> before = rig.parameters();
    loss->wrong_weight = root.rank() == 1;
    const Error error = error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0)); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
    EXPECT_NE(error.message().find("the model's loss says weight 100, the batch has 3"), std::string::npos)
        << error.message();
    EXPECT_EQ(rig.parameters(), before);
    loss->wrong_weight = false;
    // The failed step has left nothing in the gradients.
    test::SquareReference reference(before);
    for (int r = 0; r < 3; ++r) reference.add(SquareLoss::rows(r, 0));
    rig.step(loss->batch(*rig.model, root.rank(), 0));
    reference.step(0.25);
    EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
  });
}

TEST(TrainStep, NonFiniteGradientsOfOneRankSkipTheStepOnAll) {
  for (const double max_grad_norm : {0.0, 1.0})
    for (const double norm_type : {2.0, std::numeric_limits<double>::infinity()})
      test::run_ranks(3, [&](Gang& root) {
        const auto loss = std::make_shared<SquareLoss>();
        const Rig rig = square_rig(root, loss);
        const std::vector<double> before = rig.parameters();
        StepOptions options;
        options.max_grad_norm = max_grad_norm;
        options.norm_type = norm_type;
        loss->poison = root.rank() == 2;
        const StepResult result = rig.step(loss->batch(*rig.model, root.rank(), 0), options);
        EXPECT_EQ(result.skipped, Skip::non_finite) << max_grad_norm << " " << norm_type;
        EXPECT_EQ(result.step, 0);
        EXPECT_EQ(rig.parameters(), before);
        loss->poison = false;
        EXPECT_EQ(rig.step(loss->batch(*rig.model, root.rank(), 0), options).skipped, Skip::none);
        for (const double x : rig.parameters()) EXPECT_TRUE(std::isfinite(x));
      });
}

TEST(TrainStep, ANanLossOfOneRankWithFiniteGradientsSkipsTheStepOnAll) {
  for (const double max_grad_norm : {0.0, 1.0})
    for (const int size : {1, 3})
      test::run_ranks(size, [&](Gang& root) {
        const auto loss = std::make_shared<SquareLoss>();
        const Rig rig = square_rig(root, loss);
        const std::vector<double> before = rig.parameters();
        StepOptions options;
        options.max_grad_norm = max_grad_norm;
        loss->poison_loss = root.rank() == root.size() - 1;
        const Batch batch = loss->batch(*rig.model, root.rank(), 0);
        const StepResult result = rig.step(batch, options);
        EXPECT_EQ(result.skipped, Skip::non_finite) << max_grad_norm;
        EXPECT_TRUE(std::isnan(result.loss)) << result.loss;
        EXPECT_EQ(result.step, 0);
        EXPECT_EQ(rig.parameters(), before);
        options.check_finite = false;
        EXPECT_EQ(rig.step(batch, options).skipped, Skip::none) << "the caller wants it";
        EXPECT_NE(rig.parameters(), before);
      });
}

TEST(TrainStep, ThePowerOfTheNormIsTheCallersChoice) {
  test::run_ranks(2, [](Gang& root) {
    for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = square_rig(root, loss);
      test::SquareReference reference(rig.parameters());
      for (int r = 0; r < 2; ++r) reference.add(SquareLoss::rows(r, 0));
      StepOptions options;
      options.max_grad_norm = 0.5;
      options.norm_type = p;
      EXPECT_NEAR(rig.step(loss->batch(*rig.model, root.rank(), 0), options).grad_norm, reference.norm(p),
                  1e-13);
      reference.step(0.25, std::min(1.0, 0.5 / (reference.norm(p) + 1e-6)));
      EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
    }
  });
}

TEST(TrainStep, AFailureInOneRanksModuleReachesEveryRank) {
  for (const bool in_backward : {false, true})
    test::run_ranks(3, [&](Gang& root) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = square_rig(root, loss);
      if (root.rank() == 1) (in_backward ? loss->fail_backward : loss->fail_forward) = true;
      const Error error = error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0)); });
      EXPECT_NE(error.message().find("the square broke"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("rank 1"), std::string::npos) << error.message();
      EXPECT_EQ(error.code(), root.rank() == 1 ? Code::caller : Code::aborted);
      EXPECT_TRUE(root.error().has_value());
      EXPECT_TRUE(rig.model->gangs().dp()->error().has_value());
      EXPECT_NE(error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0)); }).code(), Code::ok);
    });
}

// Returns the loss of its child, whose value it reads in forward.
class ReadsLoss final : public CustomBehaviour {
 public:
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec>) override {
    return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  }
  void forward(Call& call) override {
    const Values loss = call.module.child(0).forward(call.ctx, call.inputs, call.frame);
    for (size_t i = 0; i < 2; ++i) call.ctx.ops.cast(loss[i], call.outputs[i], call.ctx.stream);
  }
  void backward_input(Call& call) override { call.module.child(0).backward(call.ctx, {}, *call.frame); }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }
};

std::unique_ptr<Optimizer> adamw(Model& model) {
  OptimizerOptions options;
  options.lr = 0.01;
  return make_optimizer("adamw", model.inspect().parameters(), options, model.ops());
}

TEST(TrainStep, ALossThatTheModuleAroundItReadsIsThereInForward) {
  test::run_ranks(2, [](Gang& root) {
    const Rig plain = test::llama_rig(root);
    CustomOptions options;
    options.input_count = options.output_count = 2;
    options.children = {{"inner", make_decoder(test::small_llama())}};
    Rig rig;
    rig.model = test::make_model(make_custom(options, std::make_shared<ReadsLoss>()), test::make_gangs(root),
                                 test::parallel(Strategy::full_shard));
    rig.optimizer = adamw(*rig.model);
    // The wrapped model has other names, and therefore other initial parameters.
    for (size_t i = 0; i < plain.model->inspect().parameters().size(); ++i)
      rig.model->inspect().assign(
          *rig.model->inspect().parameters()[i].parameter,
          plain.model->inspect().gather(*plain.model->inspect().parameters()[i].parameter, rig.stream()),
          rig.stream());
    const Batch batch = test::pattern_batch(*plain.model, 3, 8, root.rank());
    EXPECT_EQ(rig.step(batch).loss, plain.step(batch).loss);
    EXPECT_EQ(rig.parameters(), plain.parameters());
  });
}

TEST(TrainStep, ALossThatAParameterGroupCastsIsThereInForward) {
  test::run_ranks(2, [](Gang& root) {
    const Rig plain = test::llama_rig(root);
    ParallelOptions narrow = test::parallel(Strategy::full_shard);
    narrow.shard.param_dtype = DType::f64;
    narrow.shard.output_dtype = DType::f32;
    Rig rig;
    rig.model = test::make_model(make_decoder(test::small_llama()), test::make_gangs(root), narrow);
    rig.optimizer = adamw(*rig.model);
    const Batch batch = test::pattern_batch(*plain.model, 3, 8, root.rank());
    EXPECT_NEAR(rig.step(batch).loss, plain.step(batch).loss, 1e-5);
  });
}

// Half the squared distance between the outputs of a pupil and of a teacher. The teacher's backward never
// runs.
class Distance final : public CustomBehaviour {
 public:
  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec>) override {
    return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  }
  void forward(Call& call) override {
    const Tensor pupil = call.module.child(0).forward_one(call.ctx, call.inputs[0], call.frame);
    const Tensor teacher = call.module.child(1).forward_one(call.ctx, call.inputs[0], call.frame);
    apart_ = test::copy_out<double>(pupil);
    const std::vector<double> from = test::copy_out<double>(teacher);
    double sum = 0;
    for (size_t i = 0; i < apart_.size(); ++i) {
      apart_[i] -= from[i];
      sum += 0.5 * apart_[i] * apart_[i];
    }
    test::copy_in<double>(call.outputs[0], {sum});
    test::copy_in<double>(call.outputs[1], {static_cast<double>(call.inputs[0].dim(0))});
  }
  void backward_input(Call& call) override {
    const Tensor dy = call.frame->allocate_gradient(DType::f64, call.inputs[0].shape());
    std::vector<double> scaled = apart_;
    for (double& x : scaled) x *= call.ctx.loss_scale;
    test::copy_in(dy, scaled);
    call.module.child(0).backward_one(call.ctx, dy, *call.frame);
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }

 private:
  std::vector<double> apart_;
};

TEST(TrainStep, APartWhoseBackwardNeverRunsHoldsUpNoUpdate) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
    test::run_ranks(2, [&](Gang& root) {
      CustomOptions custom;
      custom.name = "Distance";
      custom.input_count = 2;
      custom.output_count = 2;
      custom.children = {{"pupil", make_linear(test::kWidth, test::kWidth, false, 1)},
                         {"teacher", make_linear(test::kWidth, test::kWidth, false, 1)}};
      custom.children[1].module->parameters()[0]->trainable = false;
      Rig rig;
      rig.model = test::make_model(make_custom(custom, std::make_shared<Distance>()), test::make_gangs(root),
                                   test::parallel(strategy));
      OptimizerOptions options;
      options.lr = 0.1;
      rig.optimizer = make_optimizer("sgd", rig.model->inspect().parameters(), options, rig.model->ops());
      const Batch batch = std::make_shared<SquareLoss>()->batch(*rig.model, root.rank(), 0);
      const double first = rig.step(batch).loss;
      EXPECT_LT(rig.step(batch).loss, first);
    });
}

// The caller's own loop runs backward with a gradient of 1, and the optimizer's step scales the gradients.
TEST(OptimizerStep, ScalesClipsStepsAndEmptiesTheGradients) {
  test::run_ranks(2, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = square_rig(root, loss);
    test::SquareReference reference(rig.parameters());
    for (int step = 0; step < 2; ++step) {
      for (int r = 0; r < 2; ++r) reference.add(SquareLoss::rows(r, step));
      Context ctx = rig.model->run().context(rig.stream());
      ctx.training = true;
      const Batch batch = loss->batch(*rig.model, root.rank(), step);
      const std::vector<Tensor> inputs = {batch.inputs[0], batch.targets[0]};
      Frame& frame = rig.model->frame(0);
      frame.reset();
      rig.model->run().forward(ctx, inputs, &frame);
      rig.model->run().backward(ctx, {}, frame);
      frame.reset();
      StepOptions options;
      options.scale = 1.0 / static_cast<double>(reference.weight());
      options.max_grad_norm = 0.5;
      const StepResult result = optimizer_step(*rig.model, *rig.optimizer, options, rig.stream());
      EXPECT_NEAR(result.grad_norm, reference.norm(2), 1e-13);
      EXPECT_EQ(result.step, step + 1);
      reference.step(0.25, std::min(1.0, 0.5 / (reference.norm(2) + 1e-6)));
      EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
    }
  });
}

}  // namespace
}  // namespace gangway
