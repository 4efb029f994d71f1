// Replicas: buckets of every size are reduced when they are full, and only once.
#include <map>

#include "parallel/reference_run.h"

namespace gangway::test {
namespace {

ModulePtr chain() {
  return make_sequential(
      {make_linear(3, 40, true, 0.5), make_linear(40, 30, true, 0.5), make_linear(30, 2, true, 0.5)});
}
const ReferenceRun kChain{chain, Shape{4, 3}};

std::unique_ptr<Model> replicated(Gang& root, double cap_mb) {
  auto model = std::make_unique<Model>(chain(), mesh_of(root));
  ShardOptions options;
  options.bucket_cap_mb = cap_mb;
  model->build().replicate(options);
  model->build().materialize(kChain.seed, DType::f64);
  return model;
}

TEST(Replicate, BucketsOfEverySizeGiveTheGradientsOfOneDevice) {
  const auto want = kChain.on_one_device(3, 2);
  std::map<std::string, Vector> first;
  for (const double cap : {25.0, 0.005, 0.0001})
    run_ranks(3, [&](Gang& root) {
      const auto model = replicated(root, cap);
      for (int m = 0; m < 2; ++m) {
        model->run().set_is_last_backward(m == 1);
        kChain.run(*model, m);
      }
      const auto got = kChain.gradients(*model);
      expect_near(got, want, 1e-12);
      root.barrier();
      if (root.rank() == 0 && first.empty()) first = got;
      root.barrier();
      EXPECT_EQ(got, first) << "sums of elements do not depend on their bucket, nor on the rank";
    });
}

TEST(Replicate, ReducesOnceAfterTheLastMicrobatchAsBucketsFill) {
  const auto calls = [](double cap, bool every) {
    uint64_t count = 0;
    run_ranks(2, [&](Gang& root) {
      const auto model = replicated(root, cap);
      const GangPtr& gang = model->gangs().loss_gang();
      const uint64_t before = gang->traffic().calls;
      for (int m = 0; m < 3; ++m) {
        model->run().set_is_last_backward(every || m == 2);
        kChain.run(*model, m);
      }
      const uint64_t in_backward = gang->traffic().calls - before;
      model->run().finish_gradients(model->device().stream());
      EXPECT_EQ(gang->traffic().calls - before, in_backward) << "all were started in backward";
      if (root.rank() == 0) count = in_backward;
    });
    return count;
  };
  EXPECT_EQ(calls(25, false), 1u);
  EXPECT_EQ(calls(0.0001, false), 6u);
  EXPECT_EQ(calls(25, true), 3u);
}

// As layers that read one input want it, to be computed as one (nn/joined_linears.h).
TEST(Replicate, BiasesLieNeitherBetweenWeightsNorBetweenTheirGradients) {
  BlockOptions options;
  options.dim = 6;
  options.heads = 3;
  options.ffn = 10;
  options.qkv_bias = options.mlp_bias = true;
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](Gang& root) {
      Model model(make_sequential({make_block(options)}), mesh_of(root));
      model.build().replicate({});
      model.build().materialize(kChain.seed, DType::f64);
      std::map<const Buffer*, size_t> next;  // where the next tensor of a buffer begins
      const auto expect_next = [&](const Tensor& tensor, const std::string& name) {
        size_t& at = next[tensor.buffer().get()];
        EXPECT_EQ(tensor.byte_offset(), at) << name;
        at += (tensor.bytes() + 63) / 64 * 64;
      };
      for (const bool matrices : {true, false})
        for (const NamedParameter& p : named_parameters(model.root())) {
          if ((p.parameter->shape.rank() > 1) != matrices) continue;
          expect_next(p.parameter->value, p.name);
          expect_next(p.parameter->shard_grad->tensor, "gradient of " + p.name);
        }
      EXPECT_EQ(next.size(), 2u) << "one buffer of values, and one bucket";
    });
}

// An initializer that fails at its first call.
struct FailsOnce final : Init::Initializer {
  void fill(int64_t first, int64_t last, void* out, size_t, DType) override {
    if (!asked) {
      asked = true;
      fail(Code::caller, "not yet");
    }
    std::fill(static_cast<double*>(out), static_cast<double*>(out) + (last - first), 0.0);
  }
  bool asked = false;
};

ModulePtr reluctant_chain() {
  const ModulePtr module = chain();
  Init init;
  init.kind = Init::Kind::fill;
  init.initializer = std::make_shared<FailsOnce>();
  // The last bias, which is zero in chain().
  named_parameters(*module).back().parameter->init = init;
  return module;
}

TEST(Replicate, MaterializeThatWasRefusedMayBeCalledAgain) {
  const auto want = kChain.on_one_device(2);
  run_ranks(2, [&](Gang& root) {
    Model model(reluctant_chain(), mesh_of(root));
    model.build().replicate({});
    expect_refusal(Code::caller, [&] { model.build().materialize(kChain.seed, DType::f64); }, {"not yet"});
    model.build().materialize(kChain.seed, DType::f64);
    kChain.run(model);
    expect_near(kChain.gradients(model), want, 1e-12);
  });
}

TEST(Parallelize, ARefusalWhileFillingMayBeFollowedByAnotherCall) {
  const auto want = kChain.on_one_device(2);
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    run_ranks(2, [&](Gang& root) {
      Model model(reluctant_chain(), mesh_of(root));
      ParallelOptions options;
      options.shard.strategy = strategy;
      options.recompute.kind = RecomputeKind::full;
      options.master_dtype = DType::f64;
      options.seed = kChain.seed;
      expect_refusal(Code::caller, [&] { model.build().parallelize(options); }, {"not yet"});
      EXPECT_TRUE(model.build().pristine());
      model.build().parallelize(options);
      kChain.run(model);
      expect_near(kChain.gradients(model), want, 1e-12);
    });
}

TEST(Parallelize, ContextsCarryTheSeedAndTheDataCoordinate) {
  run_ranks(3, [&](Gang& root) {
    const auto model = replicated(root, 25);
    const Context ctx = model->run().context(model->device().stream());
    EXPECT_EQ(ctx.seed, kChain.seed);
    EXPECT_EQ(ctx.data_index, root.rank());
  });
}

}  // namespace
}  // namespace gangway::test
