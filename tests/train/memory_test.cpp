// The memory of training, the optimizer included: the plan that the meta device makes over a fake gang equals
// the bytes that a run takes.
#include "nn/fp8.h"
#include "parallel/fsdp/fsdp_state.h"
#include "support/test_device.h"
#include "train/rig.h"

namespace gangway {
namespace {

using test::make_gangs;
using test::small_llama;

struct Case {
  int ranks, replicas;
  Strategy strategy;
  DType param, moments;
  bool momentum;  // SGD instead of AdamW
  bool fp8 = false;
};

std::unique_ptr<Optimizer> optimizer_of(Model& model, const Case& c) {
  OptimizerOptions options;
  if (c.momentum) options.hyperparameters = {{"momentum", 0.9}};
  if (!c.momentum) options.hyperparameters = {{"moment_dtype", c.moments}};
  return make_optimizer(c.momentum ? "sgd" : "adamw", model.inspect().parameters(), options, model.ops());
}

// Runs two clipped steps of two microbatches each, and an evaluation.
MemoryUse use(Gang& root, const Case& c) {
  ParallelOptions options = test::parallel(c.strategy, DType::f32);
  options.shard.param_dtype = c.param;
  const ModulePtr decoder = make_decoder(small_llama());
  if (c.fp8) apply_fp8(decoder, {.patterns = {}, .scaling = Fp8Scaling::delayed});
  const auto model = test::make_model(decoder, make_gangs(root, c.replicas), options);
  const auto optimizer = optimizer_of(*model, c);
  const auto counted = model->inspect().count_optimizer(optimizer->state_bytes());
  Stream& stream = model->device().stream();
  const Tensor ids = Tensor::allocate(model->device().allocator(), DType::i64, Shape{4, 6});
  if (ids.raw() != nullptr) std::fill_n(ids.data<int64_t>(), ids.count(), 3);
  Batch batch;
  batch.inputs = batch.targets = {ids};
  StepOptions step;
  step.microbatches = 2;
  step.max_grad_norm = 1;
  for (int i = 0; i < 2; ++i) train_step(*model, optimizer.get(), batch, step, stream);
  eval_step(*model, batch, step, stream);
  return model->inspect().memory();
}

std::vector<uint64_t> fields(const MemoryUse& m) {
  return {m.master,         m.copies,    m.region_rows, m.gradient_shards, m.gathered,
          m.full_gradients, m.optimizer, m.activations, m.gradients,       m.temporaries};
}

void expect_plan_of_run(const Case& c) {
  std::vector<MemoryUse> planned;
  for (int r = 0; r < c.ranks; ++r) {
    GangOptions meta;
    meta.device = test::test_meta();
    planned.push_back(use(*Gang::create_fake(r, c.ranks, meta, true, false), c));
  }
  test::run_ranks(c.ranks, [&](Gang& root) {
    const MemoryUse taken = use(root, c);
    EXPECT_EQ(fields(taken), fields(planned[static_cast<size_t>(root.rank())]))
        << c.ranks << " ranks, strategy " << static_cast<int>(c.strategy);
    EXPECT_GT(taken.optimizer, 0u);
  });
}

TEST(TrainMemory, PlanOnMetaEqualsTheRunExactlyWithTheOptimizer) {
  for (const auto& [ranks, replicas] : {std::pair{1, 1}, {2, 1}, {3, 1}, {4, 2}})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      for (const Case& c : {Case{ranks, replicas, strategy, DType{}, DType::f32, false},
                            Case{ranks, replicas, strategy, DType::bf16, DType::bf16, false},
                            Case{ranks, replicas, strategy, DType{}, DType::f32, true}})
        expect_plan_of_run(c);
}

// The codes, the values that a CPU decodes, and the magnitudes of delayed scales.
TEST(TrainMemory, PlanOnMetaCountsWhatFp8Takes) {
  const Case c{2, 1, Strategy::full_shard, DType::bf16, DType::f32, false, /*fp8=*/true};
  expect_plan_of_run(c);
  Case without = c;
  without.fp8 = false;
  GangOptions meta;
  meta.device = test::test_meta();
  const auto temporaries = [&](const Case& of) {
    return use(*Gang::create_fake(0, of.ranks, meta, true, false), of).temporaries;
  };
  EXPECT_GT(temporaries(c), temporaries(without));
}

// AdamW takes 16 / W bytes per parameter with f32 moments and 12 / W with bf16 moments, until its handle is
// destroyed.
TEST(TrainMemory, LocalBytesAreThoseOfTheFormula) {
  uint64_t all = 0;
  for (const NamedParameter& p : named_parameters(*make_linear(16, 12, false)))
    all += static_cast<uint64_t>(p.parameter->shape.count());
  for (const uint64_t ranks : {1, 2, 3})
    for (const DType moments : {DType::f32, DType::bf16})
      test::run_ranks(static_cast<int>(ranks), [&](Gang& root) {
        const auto model = test::make_model(make_linear(16, 12, false), make_gangs(root),
                                            test::parallel(Strategy::full_shard, DType::f32));
        OptimizerOptions options;
        options.hyperparameters["moment_dtype"] = moments;
        const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), options, model->ops());
        {
          const auto counted = model->inspect().count_optimizer(optimizer->state_bytes());
          const MemoryUse use = model->inspect().memory();
          EXPECT_EQ(use.optimizer, all / ranks * 2 * item_bytes(moments));
          EXPECT_EQ(use.master + use.region_rows + use.gradient_shards + use.optimizer,
                    all / ranks * (8 + 2 * item_bytes(moments)));
        }
        EXPECT_EQ(model->inspect().memory().optimizer, 0u);
      });
}

}  // namespace
}  // namespace gangway
