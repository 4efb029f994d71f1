// Shards in host memory (cpu_offload): training gives the same bits as with shards on the device. The tests
// check what is stored where, and what reads and writes the shards outside of a step. On a CPU offload
// changes nothing, which is tested as well.
#include "support/test_device.h"
#include "train/rig.h"

namespace gangway {
namespace {

struct Case {
  int ranks;
  Strategy strategy = Strategy::full_shard;
  int replicas = 1;
  int microbatches = 1;
  DType param = DType{};  // compute dtype; none: that of the masters
  int reshard = -1;
  std::string describe() const {
    return text(ranks, " ranks, ", replicas, " replicas, strategy ", static_cast<int>(strategy), ", ",
                microbatches, " microbatches, param_dtype ", param == DType{} ? "none" : name(param),
                ", reshard ", reshard);
  }
};

// Every combination that takes another path. The software GPU gets few of them, because it is slow.
std::vector<Case> cases() {
  if (test::test_device() == "cuda")
    return {{1, Strategy::full_shard, 1, 2, DType::bf16}, {2, Strategy::full_shard, 1, 2}};
  return {
      {1},
      {1, Strategy::full_shard, 1, 3, DType::bf16},
      {1, Strategy::shard_grad_op, 1, 2},
      {2},
      {2, Strategy::full_shard, 2, 2},
      {2, Strategy::full_shard, 1, 3, DType::bf16},
      {2, Strategy::shard_grad_op, 1, 2},
      {3, Strategy::full_shard, 1, 1, DType::f16},
      {4, Strategy::full_shard, 2, 2},
      {4, Strategy::full_shard, 1, 1, DType{}, 2},
  };
}

struct Trained {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> numbers;  // loss and norm of each step, then every value
};

Trained train(Gang& root, const Case& c, bool tied, bool offload, int steps = 2) {
  ParallelOptions options = test::parallel(c.strategy, DType::f32);
  options.shard.param_dtype = c.param;
  options.shard.reshard_after_forward = c.reshard;
  options.shard.cpu_offload = offload;
  Trained t;
  t.model =
      test::make_model(make_decoder(test::small_llama(tied)), test::make_gangs(root, c.replicas), options);
  OptimizerOptions adamw;
  adamw.lr = 0.01;
  t.optimizer = make_optimizer("adamw", t.model->inspect().parameters(), adamw, t.model->ops());
  StepOptions step;
  step.max_grad_norm = 1;
  step.microbatches = c.microbatches;
  for (int i = 0; i < steps; ++i) {
    const Batch batch = test::pattern_batch(*t.model, 6, 8, 10 * i + root.rank());
    const StepResult result =
        train_step(*t.model, t.optimizer.get(), batch, step, t.model->device().stream());
    t.numbers.insert(t.numbers.end(), {result.loss, result.grad_norm});
  }
  for (const NamedParameter& named : t.model->inspect().parameters())
    for (const double value : test::gathered(*t.model, *named.parameter)) t.numbers.push_back(value);
  return t;
}

// The gradient of a tied parameter has two terms in each microbatch. On one device each term is added to the
// sum of all microbatches; with offload it is added to the sum of its own microbatch first. The bits are
// therefore equal only with one microbatch.
TEST(Offload, TrainsToTheSameBits) {
  for (const bool tied : {false, true})
    for (Case c : cases()) {
      if (tied) c.microbatches = 1;
      test::run_ranks(c.ranks, [&](Gang& root) {
        const std::vector<double> plain = train(root, c, tied, false).numbers;
        EXPECT_GT(plain.front(), 0);
        EXPECT_EQ(train(root, c, tied, true).numbers, plain) << c.describe() << (tied ? ", tied" : "");
      });
    }
}

// The device holds only what is copied to it and from it.
TEST(Offload, ShardsGradientsAndMomentsLieOnTheHost) {
  for (const Case& c : cases())
    test::run_ranks(c.ranks, [&](Gang& root) {
      const Trained here = train(root, c, false, false, 1), t = train(root, c, false, true, 1);
      const auto use_of = [](const Trained& trained) {
        const auto counted = trained.model->inspect().count_optimizer(trained.optimizer->state_bytes(),
                                                                      trained.optimizer->state_bytes(true));
        return trained.model->inspect().memory();
      };
      const MemoryUse plain = use_of(here), use = use_of(t);
      EXPECT_EQ(plain.host, 0u);
      if (test::on_cpu()) {
        EXPECT_EQ(use.host, 0u);
        EXPECT_EQ(use.total(), plain.total());
        return;
      }
      EXPECT_EQ(use.master + use.copies + use.region_rows + use.gradient_shards + use.optimizer, 0u)
          << c.describe();
      EXPECT_EQ(use.host, plain.master + plain.copies + plain.gradient_shards + plain.optimizer)
          << c.describe();
      EXPECT_LT(use.total(), plain.total()) << c.describe();
      for (size_t i = 0; i < t.optimizer->parameters().size(); ++i) {
        const Parameter& p = *t.optimizer->parameters()[i].parameter;
        std::vector<Tensor> resting = {p.shard, p.shard_grad->tensor};
        if (p.shard_copy) resting.push_back(p.shard_copy);
        for (const Optimizer::Slot& slot : t.optimizer->state(i)) resting.push_back(slot.tensor);
        for (const Tensor& tensor : resting)
          EXPECT_EQ(tensor.buffer()->kind(), MemoryKind::pinned) << p.full_name << ", " << c.describe();
      }
    });
}

TEST(Offload, ReplicasAreComparedWhereTheyRest) {
  test::run_ranks(2, [&](Gang& root) {
    const Trained t = train(root, {2, Strategy::full_shard, 2}, false, true, 1);
    Stream& stream = t.model->device().stream();
    t.model->inspect().check_replicas(stream);
    const Parameter& p = *t.model->inspect().parameters()[0].parameter;
    if (root.rank() == 1) t.model->ops().fill(p.shard, 7, stream);
    const Error error = test::error_of([&] { t.model->inspect().check_replicas(stream); });
    EXPECT_EQ(error.code(), Code::mismatch);
    EXPECT_NE(error.message().find(p.full_name), std::string::npos) << error.message();
  });
}

TEST(Offload, NoShardIsRefused) {
  test::run_ranks(1, [](Gang& root) {
    ParallelOptions options = test::parallel(Strategy::no_shard);
    options.shard.cpu_offload = true;
    const Error error = test::error_of(
        [&] { test::make_model(make_decoder(test::small_llama()), test::make_gangs(root), options); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("cpu_offload is 1, but NO_SHARD"), std::string::npos) << error.message();
  });
}

}  // namespace
}  // namespace gangway
