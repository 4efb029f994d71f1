// Loss scales in training: which numbers do not depend on them, how they change, and that all ranks agree on
// them.
#include "train/manual.h"
#include "train/pipeline.h"
#include "train/rig.h"

namespace gangway {
namespace {

using test::error_of;
using test::pattern_batch;
using test::Rig;
using test::small_llama;
using test::square_rig;
using test::SquareLoss;

// --- numbers that do not depend on the scale

struct Variant {
  test::PipelineCase mesh;
  DType compute = DType::f32;
  bool tied = false;
  int microbatches = 1;
};

// Losses, norms and own rows of three steps, by rank.
std::vector<std::vector<double>> numbers(const Variant& run, double loss_scale, bool sgd) {
  std::vector<std::vector<double>> of_ranks(static_cast<size_t>(run.mesh.ranks()));
  test::run_ranks(run.mesh.ranks(), [&](Gang& root) {
    ParallelOptions parallel = run.mesh.options(DType::f32);
    parallel.shard.param_dtype = run.compute;
    DecoderOptions config = small_llama(run.tied);
    config.vocab = 18;  // a multiple of tp
    const auto model = test::make_model(make_decoder(config), test::make_gangs(root, run.mesh), parallel);
    OptimizerOptions options;
    options.lr = 0.01;
    options.loss_scale.fixed = loss_scale;
    const auto optimizer =
        make_optimizer(sgd ? "sgd" : "adamw", model->inspect().parameters(), options, model->ops());
    StepOptions step;
    step.max_grad_norm = 0.5;
    step.microbatches = run.microbatches;
    std::vector<double>& all = of_ranks[static_cast<size_t>(root.rank())];
    int index = 0, count = 1;
    model->gangs().data_shard(&index, &count);
    for (int i = 0; i < 3; ++i) {
      const StepResult result =
          train_step(*model, optimizer.get(), pattern_batch(*model, 4, 12, 5 * i + index), step,
                     model->device().stream());
      EXPECT_EQ(result.skipped, Skip::none);
      EXPECT_EQ(result.loss_scale, loss_scale == 0 ? 1 : loss_scale);
      all.insert(all.end(), {result.loss, result.grad_norm});
    }
    for (const NamedParameter& p : model->inspect().parameters())
      for (const float x : test::copy_out<float>(p.parameter->shard)) all.push_back(x);
  });
  return of_ranks;
}

TEST(LossScale, APowerOfTwoChangesNoBits) {
  const Variant runs[] = {
      {{.pp = 1, .shards = 2}},
      {{.pp = 1, .shards = 2}, DType::bf16, false, 3},
      {{.pp = 1, .shards = 2, .strategy = Strategy::shard_grad_op}, DType::bf16, true, 2},
      {{.pp = 1, .shards = 2, .strategy = Strategy::no_shard, .recompute = RecomputeKind::full}, DType::bf16},
      {{.pp = 1, .replicas = 2, .recompute = RecomputeKind::selective}, DType::f32, true, 2},
      {{.pp = 1, .tp = 2, .sequence_parallel = true}, DType::bf16},
      {{.pp = 1, .cp = 2}, DType::bf16},
      {{.schedule = "1f1b"}, DType::bf16, true, 4},
      {{.schedule = "zb-h1", .recompute = RecomputeKind::full}, DType::f32, false, 4},
  };
  for (const Variant& run : runs)
    for (const bool sgd : {false, true})
      EXPECT_EQ(numbers(run, sgd ? 0x1p-3 : 0x1p12, sgd), numbers(run, 0, sgd)) << run.mesh.text();
}

TEST(LossScale, OwnLoopsSeedWithItAndTheStepDividesByIt) {
  for (const double max_grad_norm : {0.0, 0.5})
    test::run_ranks(2, [&](Gang& root) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig plain = square_rig(root, loss);
      Rig own = square_rig(root, loss);
      OptimizerOptions options = own.optimizer->options();
      options.loss_scale.fixed = 0x1p10;
      own.optimizer = make_optimizer("sgd", own.model->inspect().parameters(), options, own.model->ops());
      StepOptions step;
      step.max_grad_norm = max_grad_norm;
      const StepResult expected = plain.step(loss->batch(*plain.model, root.rank(), 0), step);

      Context ctx = own.model->run().context(own.stream());
      ctx.training = true;
      ctx.loss_scale = own.optimizer->loss_scale().value() / static_cast<double>(expected.weight);
      const Batch batch = loss->batch(*own.model, root.rank(), 0);
      const Tensor inputs[] = {batch.inputs[0], batch.targets[0]};
      Frame& frame = own.model->frame(0);
      own.model->run().forward(ctx, inputs, &frame);
      own.model->run().backward(ctx, {}, frame);
      frame.reset();
      own.model->run().finish_gradients(own.stream());
      const StepResult result = optimizer_step(*own.model, *own.optimizer, step, own.stream());
      EXPECT_EQ(result.grad_norm, expected.grad_norm);
      EXPECT_EQ(result.loss_scale, 0x1p10);
      EXPECT_EQ(own.parameters(), plain.parameters());
    });
}

// --- how the scale changes

// Gives the optimizer parameters that claim to be computed in f16. All operations still run in f64.
Rig dynamic_rig(Gang& root, const std::shared_ptr<SquareLoss>& loss, double initial, int64_t interval) {
  Rig rig = square_rig(root, loss);
  for (const NamedParameter& p : rig.model->inspect().parameters()) p.parameter->compute_dtype = DType::f16;
  OptimizerOptions options = rig.optimizer->options();
  options.loss_scale = {.initial = initial, .interval = interval};
  rig.optimizer = make_optimizer("sgd", rig.model->inspect().parameters(), options, rig.model->ops());
  return rig;
}

TEST(LossScale, HalvesOnAllRanksWhereOneIsNotFiniteAndDoublesAfterFiniteSteps) {
  for (const double max_grad_norm : {0.0, 0.5})
    test::run_ranks(3, [&](Gang& root) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = dynamic_rig(root, loss, 8, 2), plain = square_rig(root, loss);
      StepOptions options;
      options.max_grad_norm = max_grad_norm;
      const struct {
        bool poison, poison_loss;
        double used, then;
      } steps[] = {{false, false, 8, 8}, {false, false, 8, 16}, {false, false, 16, 16}, {true, false, 16, 8},
                   {false, false, 8, 8}, {false, true, 8, 4},   {false, false, 4, 4},   {false, false, 4, 8}};
      for (int i = 0; i < static_cast<int>(std::size(steps)); ++i) {
        loss->poison = steps[i].poison && root.rank() == 2;
        loss->poison_loss = steps[i].poison_loss && root.rank() == 0;
        const bool skipped = steps[i].poison || steps[i].poison_loss;
        const StepResult result = rig.step(loss->batch(*rig.model, root.rank(), i), options);
        EXPECT_EQ(result.skipped, skipped ? Skip::non_finite : Skip::none) << i;
        EXPECT_EQ(result.loss_scale, steps[i].used) << i;
        EXPECT_EQ(rig.optimizer->loss_scale().value(), steps[i].then) << i;
        if (!skipped) {
          const StepResult expected = plain.step(loss->batch(*plain.model, root.rank(), i), options);
          EXPECT_EQ(result.loss, expected.loss) << i;
          EXPECT_EQ(result.grad_norm, expected.grad_norm) << i;
        }
        EXPECT_EQ(rig.parameters(), plain.parameters()) << i;
      }
      EXPECT_EQ(rig.optimizer->steps(), 6);
    });
}

TEST(LossScale, AStepWithoutWeightAndAnEvaluationLeaveItAlone) {
  test::run_ranks(2, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = dynamic_rig(root, loss, 8, 1);
    Batch batch = loss->batch(*rig.model, root.rank(), 0);
    EXPECT_EQ(eval_step(*rig.model, batch, {}, rig.stream()).loss_scale, 1);
    batch.weight = 0;
    const StepResult result = rig.step(batch);
    EXPECT_EQ(result.skipped, Skip::no_weight);
    EXPECT_EQ(result.loss_scale, 8);
    EXPECT_EQ(rig.optimizer->loss_scale().value(), 8);
  });
}

// The scale fits into f32, but the gradients do not fit into f16.
TEST(LossScale, AFixedOneThatOverflowsSkipsAndStays) {
  test::run_ranks(2, [](Gang& root) {
    ParallelOptions parallel = test::parallel(Strategy::full_shard, DType::f32);
    parallel.shard.param_dtype = DType::f16;
    Rig rig;
    rig.model = test::make_model(make_decoder(small_llama()), test::make_gangs(root), parallel);
    OptimizerOptions options;
    options.loss_scale.fixed = 0x1p126;
    rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), options, rig.model->ops());
    const std::vector<double> before = rig.parameters();
    const StepResult result = rig.step(pattern_batch(*rig.model, 2, 6, root.rank()));
    EXPECT_EQ(result.skipped, Skip::non_finite);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_EQ(rig.parameters(), before);
    EXPECT_EQ(rig.optimizer->loss_scale().value(), 0x1p126);
  });
}

// --- refusals

TEST(LossScale, OptionsBesideItAreRefusedOnAllRanks) {
  const auto expect_refused = [](const Rig& rig, const Batch& batch, const StepOptions& options,
                                 const std::string& words) {
    for (const bool own_loop : {false, true}) {
      const Error error = error_of([&] {
        if (own_loop)
          optimizer_step(*rig.model, *rig.optimizer, options, rig.stream());
        else
          rig.step(batch, options);
      });
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    }
  };
  test::run_ranks(2, [&](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = dynamic_rig(root, loss, 8, 2);
    const Batch batch = loss->batch(*rig.model, root.rank(), 0);
    StepOptions unchecked, high, highest;
    unchecked.check_finite = root.rank() != 1;
    high.max_grad_norm = highest.max_grad_norm = 1;
    high.norm_type = root.rank() == 1 ? 33 : 2;
    expect_refused(rig, batch, unchecked, "step.allow_non_finite beside a dynamic loss scale");
    expect_refused(rig, batch, high, "step.norm_type = 33 is over 32 beside a loss scale");
    highest.norm_type = 32;
    EXPECT_EQ(rig.step(batch, highest).skipped, Skip::none);
    highest.norm_type = std::numeric_limits<double>::infinity();
    EXPECT_EQ(rig.step(batch, highest).skipped, Skip::none);
    const Rig plain = square_rig(root, loss);
    highest.norm_type = 33;
    EXPECT_EQ(plain.step(batch, highest).skipped, Skip::none) << "without a scale";
    plain.optimizer->loss_scale().set(2);
    StepOptions all_unchecked;
    all_unchecked.check_finite = false;
    EXPECT_EQ(plain.step(batch, all_unchecked).skipped, Skip::none) << "beside a fixed one";
    expect_refused(plain, batch, highest, "step.norm_type = 33");
    EXPECT_FALSE(root.error().has_value());
  });
}

TEST(DifferingRanks, ALossScaleThatOneRankSetsIsReported) {
  test::run_ranks(3, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = dynamic_rig(root, loss, 8, 5);
    const Batch batch = loss->batch(*rig.model, root.rank(), 0);
    rig.step(batch);
    if (root.rank() == 2) rig.optimizer->loss_scale().set(32);
    test::expect_error(
        Code::mismatch,
        "train_step: rank 0 has loss_scale 8, rank 2 has loss_scale 32; give all ranks the same",
        [&] { rig.step(batch); });
    if (root.rank() == 2) rig.optimizer->loss_scale().set(8);
    test::expect_error(
        Code::mismatch,
        "optimizer_step: rank 0 has finite_steps 1, rank 2 has finite_steps 0; give all ranks the same",
        [&] { optimizer_step(*rig.model, *rig.optimizer, {}, rig.stream()); });
    rig.optimizer->loss_scale().set(8);
    EXPECT_EQ(rig.step(batch).skipped, Skip::none);
  });
}

// --- f16

TEST(LossScale, OfF16StartsAt65536AndHalvesWhereGradientsOverflow) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
    test::run_ranks(2, [&](Gang& root) {
      ParallelOptions parallel = test::parallel(strategy, DType::f32);
      parallel.shard.param_dtype = DType::f16;
      Rig rig;
      rig.model = test::make_model(make_decoder(small_llama()), test::make_gangs(root), parallel);
      OptimizerOptions options;
      options.loss_scale.interval = 2;
      rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), options, rig.model->ops());
      const Batch batch = pattern_batch(*rig.model, 2, 6, root.rank());
      EXPECT_EQ(rig.optimizer->loss_scale().value(), 65536);
      rig.optimizer->loss_scale().set(256);
      for (const double then : {256, 512}) {
        EXPECT_EQ(rig.step(batch).skipped, Skip::none);
        EXPECT_EQ(rig.optimizer->loss_scale().value(), then);
      }
      rig.optimizer->loss_scale().set(0x1p24);
      const std::vector<double> before = rig.parameters();
      const StepResult result = rig.step(batch);
      EXPECT_EQ(result.skipped, Skip::non_finite);
      EXPECT_TRUE(std::isfinite(result.loss));
      EXPECT_EQ(result.loss_scale, 0x1p24);
      EXPECT_EQ(rig.optimizer->loss_scale().value(), 0x1p23);
      EXPECT_EQ(rig.parameters(), before);
    });
}

}  // namespace
}  // namespace gangway
