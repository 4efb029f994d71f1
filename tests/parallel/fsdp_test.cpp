// Sharded parameter groups: rows, frozen and unused parameters, microbatches, local gradients, storage,
// precision and norms.
#include <limits>
#include <numeric>

#include "base/config.h"
#include "parallel/reference_run.h"

namespace gangway::test {
namespace {

// 5, 7, 2 and 1 rows, which are uneven over 2, 3 and 4 ranks. Some ranks have no rows.
ModulePtr uneven() {
  return make_sequential({make_linear(3, 5, true, 0.5), make_linear(5, 7, false, 0.5),
                          make_linear(7, 2, true, 0.5), make_linear(2, 1, true, 0.5)});
}
const ReferenceRun kUneven{uneven, Shape{4, 3}};

ParallelOptions f64_options(Strategy strategy = Strategy::full_shard) {
  ParallelOptions options;
  options.shard.strategy = strategy;
  options.master_dtype = DType::f64;
  options.seed = 5;
  return options;
}

std::unique_ptr<Model> sharded(const ReferenceRun& reference, Gang& root, const ParallelOptions& options,
                               int replicas = 1, bool regions = true) {
  auto model = std::make_unique<Model>(reference.make(), mesh_of(root, replicas));
  model->fsdp().use_regions(regions);
  model->build().parallelize(options);
  return model;
}

constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};

TEST(FullyShard, UnevenRowsAreOwnedInCeilPieces) {
  run_ranks(4, [](Gang& root) {
    const auto model = sharded(kUneven, root, f64_options());
    const Parameter& weight = *model->inspect().parameter("0.weight").parameter;
    EXPECT_EQ(describe(weight.layout), "dp_shard: Shard(0)");
    EXPECT_EQ(weight.layout[0].bounds, (std::vector<int64_t>{0, 2, 4, 5, 5}));
    EXPECT_EQ(weight.shard.dim(0), (std::vector<int64_t>{2, 2, 1, 0})[static_cast<size_t>(root.rank())]);
    EXPECT_FALSE(weight.value) << "sharded outside of forward";
  });
}

TEST(FullyShard, UnevenRowsGiveTheGradientsOfOneDevice) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto want = kUneven.on_one_device(ranks);
    for (const Strategy strategy : kStrategies)
      // The strategy's own time to reshard, after backward, or after forward.
      for (const int reshard : {-1, 0, 1})
        for (const bool regions : {true, false})
          run_ranks(ranks, [&](Gang& root) {
            ParallelOptions options = f64_options(strategy);
            options.shard.reshard_after_forward = reshard;
            const auto model = sharded(kUneven, root, options, 1, regions);
            kUneven.run(*model);
            expect_near(kUneven.gradients(*model), want, 1e-12);
          });
  }
}

// Returns values and gradients after two steps of two microbatches. The second microbatch begins while the
// values of the first are still kept.
std::map<std::string, Vector> two_steps(Gang& root, int reshard, DType param, bool unsharded) {
  ParallelOptions options = f64_options();
  options.shard.reshard_after_forward = reshard;
  options.shard.param_dtype = param;
  options.shard.accumulate_unsharded = unsharded;
  const ReferenceRun reference{uneven, Shape{4, 3}, param == DType{} ? DType::f64 : param};
  const auto model = sharded(reference, root, options, 1, /*regions=*/false);
  Stream& stream = model->device().stream();
  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), reference.adamw(), model->ops());
  std::map<std::string, Vector> out;
  for (int step = 0; step < 2; ++step) {
    for (int m = 0; m < 2; ++m) {
      model->run().set_is_last_backward(m == 1);
      reference.run(*model, m);
    }
    out = reference.gradients(*model);
    model->run().begin_update(stream);
    optimizer->step(1, 1, stream);
    model->run().end_update(stream);
  }
  for (const NamedParameter& p : model->inspect().parameters())
    out["value " + p.name] = get(model->inspect().gather(*p.parameter, stream));
  return out;
}

TEST(FullyShard, ValuesThatAFewRanksKeepAfterForwardGiveTheSameBits) {
  for (const auto& c : {std::pair(4, std::vector<int>{2, 4}), std::pair(6, std::vector<int>{2, 3})})
    for (const DType param : {DType{}, DType::f32})
      for (const bool unsharded : {false, true})
        run_ranks(c.first, [&](Gang& root) {
          const auto want = two_steps(root, 1, param, unsharded);
          for (const int k : c.second)
            EXPECT_EQ(two_steps(root, k, param, unsharded), want) << k << " of " << c.first;
        });
}

// Forward gathers from all ranks. Backward gathers from the two ranks that have kept the values.
TEST(FullyShard, BackwardGathersFromTheRanksThatKeptTheValues) {
  run_ranks(4, [](Gang& root) {
    ParallelOptions options = f64_options();
    options.shard.reshard_after_forward = 2;
    const auto model = sharded(kUneven, root, options, 1, /*regions=*/false);
    uint64_t piece = 0;  // of all parameters, with their padding
    for (const auto& group : model->fsdp().groups())
      for (const PackedParameter& p : group->packing().parameters) piece += p.piece_bytes(p.compute);
    Gang &all = *model->gangs().fsdp_gang(), &two = *model->gangs().fsdp_subgang(2);
    EXPECT_EQ(two.size(), 2);
    EXPECT_EQ(two.rank(), all.rank() % 2);
    for (int step = 1; step <= 2; ++step) {
      const uint64_t before = all.traffic().bytes_moved;
      kUneven.run(*model);
      model->run().finish_gradients(model->device().stream());
      model->device().stream().synchronize();  // a collective counts its bytes when they have moved
      EXPECT_EQ(two.traffic().bytes_moved, static_cast<uint64_t>(step) * (2 - 1) * 2 * piece);
      EXPECT_EQ(all.traffic().bytes_moved - before, 2 * (4 - 1) * piece) << "one gather, one reduce-scatter";
    }
    const MemoryUse use = model->inspect().memory();
    const auto without = [&] {
      options.shard.reshard_after_forward = 1;
      return sharded(kUneven, root, options, 1, /*regions=*/false)->inspect().memory();
    }();
    EXPECT_GE(use.gathered, without.gathered + 2 * piece);
    EXPECT_LT(use.gathered, without.gathered + 2 * piece + 64 * model->inspect().parameters().size());
  });
}

// The backward of an embedding reads no values, so only its forward gathers them, whatever is kept of other
// layers.
TEST(FullyShard, BackwardGathersNoTableOfAnEmbedding) {
  for (const int reshard : {1, 2})
    run_ranks(4, [&](Gang& root) {
      ParallelOptions options = f64_options();
      options.shard.reshard_after_forward = reshard;
      Model model(make_sequential(
                      {make_embedding(6, 4, 1), make_linear(4, 5, true, 0.5), make_linear(5, 2, true, 0.5)}),
                  mesh_of(root));
      model.fsdp().use_regions(false);
      model.build().parallelize(options);
      const std::vector<int64_t> ids = {0, 5, 3};
      Stream& stream = model.device().stream();
      uint64_t expected = 0, from_post_forward_gang = 0;
      for (const auto& group : model.fsdp().groups()) {
        uint64_t piece = 0;
        for (const PackedParameter& p : group->packing().parameters) piece += p.piece_bytes(p.compute);
        const bool table = !group->parameters().empty() && group->parameters()[0].name == "0.weight",
                   last = group == model.fsdp().groups().back();
        expected += 3 * piece * (table || last || reshard == 2 ? 2 : 3);  // this includes the reduction
        if (reshard == 2 && !table) from_post_forward_gang += 2 * piece;
      }
      Gang& all = *model.gangs().fsdp_gang();
      for (int step = 0; step < 2; ++step) {
        const uint64_t before = all.traffic().bytes_moved;
        Context ctx = model.run().context(stream);
        Frame& frame = model.frame(0);
        const Tensor x = Tensor::allocate(model.device().allocator(), DType::i64, Shape{3});
        model.device().copy(x.raw(), ids.data(), x.bytes(), stream);
        const Tensor y = model.run().forward(ctx, {&x, 1}, &frame)[0];
        const Tensor dy = frame.allocate_gradient(y.dtype(), y.shape());
        ctx.ops.fill(dy, 1, stream);
        model.run().backward(ctx, {&dy, 1}, frame);
        frame.reset();
        model.run().finish_gradients(stream);
        stream.synchronize();
        EXPECT_EQ(all.traffic().bytes_moved - before, expected);
        if (reshard == 2) {
          EXPECT_EQ(model.gangs().fsdp_subgang(2)->traffic().bytes_moved,
                    from_post_forward_gang * static_cast<uint64_t>(step + 1));
        }
      }
    });
}

// On one host ranks read the shared rows of their peers: no rank keeps a copy, and nothing moves.
TEST(FullyShard, RanksThatShareRowsKeepNoCopy) {
  run_ranks(4, [](Gang& root) {
    ParallelOptions options = f64_options();
    options.shard.reshard_after_forward = 2;
    const auto model = sharded(kUneven, root, options);
    if (!config().shared_regions || model->gangs().fsdp_gang()->shared_memory() == nullptr) return;
    EXPECT_GT(model->inspect().memory().region_rows, 0u);
    EXPECT_EQ(model->inspect().memory().gathered, 0u);
  });
}

ModulePtr block() {
  AttentionOptions attention;
  attention.dim = 12;
  attention.heads = 3;
  attention.deviation = 0.5;
  return make_sequential({make_block({attention, 20}), make_rmsnorm(12, 1e-5), make_linear(12, 4, false)});
}

// Backward needs the output of a norm after the norm's parameter group, which could compute it again, has
// been resharded.
TEST(FullyShard, NormsCanBeParameterGroupsOfTheirOwn) {
  const ReferenceRun reference{block, Shape{2, 5, 12}};
  const auto want = reference.on_one_device(2);
  for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::selective})
    for (const Strategy strategy : kStrategies)
      run_ranks(2, [&](Gang& root) {
        const ParallelOptions options = f64_options(strategy);
        Model model(block(), mesh_of(root));
        model.build().recompute({.kind = recompute});
        for (const char* group :
             {"*.input_layernorm", "*.post_attention_layernorm", "*.self_attn.*", "*.mlp.*", "1", "2", ""})
          model.build().fully_shard(group, options.shard);
        model.build().materialize(options.seed, options.master_dtype);
        reference.run(model);
        expect_near(reference.gradients(model), want, 1e-12);
      });
}

TEST(FullyShard, FirstValuesAreTheSameBitsOnEveryMesh) {
  const auto values = [](int ranks, Strategy strategy) {
    std::map<std::string, Vector> out;
    run_ranks(ranks, [&](Gang& root) {
      const auto model = sharded(kUneven, root, f64_options(strategy));
      for (const NamedParameter& p : model->inspect().parameters()) {
        const Vector whole = get(model->inspect().gather(*p.parameter, model->device().stream()));
        if (root.rank() == ranks - 1) out[p.name] = whole;
      }
    });
    return out;
  };
  const auto one = values(1, Strategy::full_shard);
  EXPECT_EQ(values(4, Strategy::full_shard), one);
  EXPECT_EQ(values(3, Strategy::no_shard), one);
}

TEST(FullyShard, MicrobatchesAddUp) {
  const auto want = kUneven.on_one_device(3, 3);
  std::map<std::string, std::map<std::string, Vector>> results;
  for (const Strategy strategy : kStrategies)
    for (const int unsharded : {0, 1}) {
      if (strategy == Strategy::no_shard && unsharded == 0) continue;
      ParallelOptions options = f64_options(strategy);
      options.shard.accumulate_unsharded = unsharded;
      run_ranks(3, [&](Gang& root) {
        const auto model = sharded(kUneven, root, options);
        for (int m = 0; m < 3; ++m) {
          model->run().set_is_last_backward(m == 2);
          kUneven.run(*model, m);
        }
        const auto got = kUneven.gradients(*model);
        expect_near(got, want, 1e-12);
        if (root.rank() == 0) results[text(static_cast<int>(strategy), unsharded)] = got;
      });
    }
  EXPECT_EQ(results.at("00"), results.at("10")) << "FULL_SHARD and SHARD_GRAD_OP, reduced every microbatch";
  EXPECT_EQ(results.at("01"), results.at("11")) << "the same, accumulated unsharded";
}

// A second backward adds to the gradients, even after they have been reduced.
TEST(FullyShard, GradientsAddUntilTheyAreEmptied) {
  const auto once = kUneven.on_one_device(2, 1), twice = kUneven.on_one_device(2, 2);
  for (const Strategy strategy : kStrategies)
    run_ranks(2, [&](Gang& root) {
      const auto model = sharded(kUneven, root, f64_options(strategy));
      kUneven.run(*model, 0);
      expect_near(kUneven.gradients(*model), once, 1e-12);
      kUneven.run(*model, 1);
      expect_near(kUneven.gradients(*model), twice, 1e-12);
      Stream& stream = model->device().stream();
      model->run().zero_gradients(stream);
      for (const NamedParameter& p : model->inspect().parameters()) {
        const Vector local = get(model->inspect().gradient(*p.parameter, stream));
        EXPECT_EQ(local, Vector(local.size(), 0.0)) << p.name;
      }
      EXPECT_EQ(model->run().gradient_norm(2, stream), 0);
      kUneven.run(*model, 0);
      expect_near(kUneven.gradients(*model), once, 1e-12);
    });
}

// What a caller writes into the local gradient is added to the sum once, whatever comes after.
TEST(FullyShard, LocalGradientsThatTheCallerWritesCountOnce) {
  for (const int ranks : {1, 3})
    for (const Strategy strategy : kStrategies)
      run_ranks(ranks, [&](Gang& root) {
        const auto model = sharded(kUneven, root, f64_options(strategy));
        Stream& stream = model->device().stream();
        for (int step = 0; step < 2; ++step) {
          for (const NamedParameter& p : model->inspect().parameters()) {
            const Tensor local = model->inspect().gradient(*p.parameter, stream);
            EXPECT_EQ(get(local), Vector(static_cast<size_t>(local.count()))) << p.name << " starts at zero";
            put(local, Vector(static_cast<size_t>(local.count()), 2));
          }
          auto want = kUneven.on_one_device(ranks);
          for (auto& [name, gradient] : want)
            for (double& g : gradient) g = step == 0 ? 2 : g + 2;
          if (step == 1) kUneven.run(*model);
          expect_near(kUneven.gradients(*model), want, 1e-12);
          model->run().begin_update(stream);
          model->run().end_update(stream);
        }
      });
}

TEST(FullyShard, SharedRegionsAndPrivateShardsGiveTheSameBits) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op})
    for (const int prefetch : {0, 1, 3}) {
      std::map<std::string, Vector> results[2];
      for (const bool regions : {false, true})
        run_ranks(4, [&](Gang& root) {
          ParallelOptions options = f64_options(strategy);
          options.shard.prefetch_forward = options.shard.prefetch_backward = prefetch;
          const auto model = sharded(kUneven, root, options, 1, regions);
          for (int m = 0; m < 2; ++m) kUneven.run(*model, m);
          const auto got = kUneven.gradients(*model);
          // An update between two steps: with private shards it is ordered after the ends of their gathers.
          Stream& stream = model->device().stream();
          model->run().begin_update(stream);
          for (const NamedParameter& p : model->inspect().parameters())
            if (p.parameter->shard.count() != 0)
              model->ops().add(p.parameter->shard_grad->tensor, -0.1, p.parameter->shard, stream);
          model->run().end_update(stream);
          kUneven.run(*model, 2);
          const auto after = kUneven.gradients(*model);
          EXPECT_NE(after, got);
          if (root.rank() == 0) results[regions] = after;
        });
      EXPECT_EQ(results[0], results[1]) << "prefetch " << prefetch;
    }
}

TEST(FullyShard, FrozenParametersHaveNoGradientStorage) {
  for (const Strategy strategy : kStrategies)
    run_ranks(2, [&](Gang& root) {
      Model model(uneven(), mesh_of(root));
      for (const NamedParameter& p : named_parameters(model.root()))
        if (p.name.starts_with("1.") || p.name == "0.bias")
          // A whole parameter group, and a part of another.
          p.parameter->trainable = false;
      model.build().parallelize(f64_options(strategy));
      kUneven.run(model);
      const auto got = kUneven.gradients(model);
      EXPECT_FALSE(got.contains("1.weight"));
      EXPECT_FALSE(model.inspect().parameter("1.weight").parameter->shard_grad);
      expect_near(got, kUneven.on_one_device(2), 1e-12);
      EXPECT_EQ(got.size(), 5u);
    });
}

// Runs only its first child.
class Skips final : public Module {
 public:
  explicit Skips(std::vector<ModulePtr> modules) {
    for (size_t i = 0; i < modules.size(); ++i) add_child(std::to_string(i), modules[i]);
  }
  const char* kind() const override { return "Skips"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    return child(0).forward(ctx, inputs, frame);
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    return child(0).backward(ctx, dy, frame);
  }
};
ModulePtr skips() {
  return std::make_shared<Skips>(
      std::vector<ModulePtr>{make_linear(3, 5, true, 0.5), make_linear(3, 5, true, 0.5)});
}

TEST(FullyShard, UnusedParametersHaveZeroGradients) {
  const ReferenceRun reference{skips, Shape{2, 3}};
  for (const Strategy strategy : kStrategies)
    for (const bool regions : {true, false})
      run_ranks(3, [&](Gang& root) {
        const auto model = sharded(reference, root, f64_options(strategy), 1, regions);
        for (int step = 0; step < 2; ++step) {
          reference.run(*model);
          const auto got = reference.gradients(*model);
          expect_near(got, reference.on_one_device(3), 1e-12);
          EXPECT_EQ(got.at("1.weight"), Vector(15, 0.0));
          EXPECT_TRUE(model->inspect().parameter("1.weight").parameter->shard_grad->written)
              << "zeros, not undefined";
          Stream& stream = model->device().stream();
          model->run().begin_update(stream);
          model->run().end_update(stream);
        }
      });
}

TEST(FullyShard, HybridGradientsAreThoseOfOneDevice) {
  for (const Strategy strategy : kStrategies)
    for (const DType reduce : {DType{}, DType::f32})
      for (const bool regions : {true, false})
        run_ranks(4, [&](Gang& root) {
          ParallelOptions options = f64_options(strategy);
          options.shard.reduce_dtype = reduce;
          const auto model = sharded(kUneven, root, options, 2, regions);
          for (int m = 0; m < 2; ++m) kUneven.run(*model, m);
          expect_near(kUneven.gradients(*model), kUneven.on_one_device(4, 2),
                      reduce == DType{} ? 1e-12 : 1e-6);
        });
}

TEST(FullyShard, ReduceDtypeIsTakenOnTheWayOnly) {
  const ReferenceRun reference{uneven, Shape{4, 3}, DType::f32};
  const auto want = reference.on_one_device(3);
  for (const Strategy strategy : kStrategies)
    run_ranks(3, [&](Gang& root) {
      ParallelOptions options;
      options.seed = 5;
      options.shard.strategy = strategy;
      options.shard.reduce_dtype = DType::bf16;
      const auto model = sharded(reference, root, options);
      reference.run(*model);
      const auto got = reference.gradients(*model);
      EXPECT_EQ(model->inspect().parameter("0.weight").parameter->shard_grad->tensor.dtype(), DType::f32);
      for (const auto& [name, gradient] : want) {
        EXPECT_LE(normwise(got.at(name), gradient), 2e-2) << name;
        EXPECT_GT(normwise(got.at(name), gradient), 1e-6) << name << " travelled in bf16";
      }
    });
}

TEST(FullyShard, GradientNormIsTheSameBitsOnEveryRank) {
  for (const double p : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    double want = 0;
    for (const auto& [name, gradient] : kUneven.on_one_device(4))
      for (const double g : gradient)
        want = std::isinf(p) ? std::max(want, std::abs(g)) : want + std::pow(std::abs(g), p);
    if (!std::isinf(p)) want = std::pow(want, 1 / p);
    for (const int replicas : {1, 2, 4})
      for (const Strategy strategy : kStrategies) {
        std::vector<double> norms(4);
        run_ranks(4, [&](Gang& root) {
          const auto model = sharded(kUneven, root, f64_options(strategy), replicas);
          kUneven.run(*model);
          norms[static_cast<size_t>(root.rank())] = model->run().gradient_norm(p, model->device().stream());
        });
        EXPECT_NEAR(norms[0] / want, 1, 1e-12);
        for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
      }
  }
}

TEST(FullyShard, NormOfAGradientThatIsNoNumberIsNotFiniteAnywhere) {
  for (const double p : {2.0, std::numeric_limits<double>::infinity()})
    for (const Strategy strategy : kStrategies)
      run_ranks(3, [&](Gang& root) {
        const auto model = sharded(kUneven, root, f64_options(strategy));
        kUneven.run(*model);
        model->run().finish_gradients(model->device().stream());
        const Tensor gradient = model->inspect().parameter("1.weight").parameter->shard_grad->tensor;
        if (root.rank() == 1 || strategy == Strategy::no_shard)
          put(gradient.slice(0, 0, 1).flatten2().slice(1, 0, 1), {std::nan("")});
        EXPECT_FALSE(std::isfinite(model->run().gradient_norm(p, model->device().stream())));
      });
}

TEST(FullyShard, AssignAndGatherAreInverse) {
  for (const Strategy strategy : kStrategies)
    run_ranks(3, [&](Gang& root) {
      const auto model = sharded(kUneven, root, f64_options(strategy));
      Stream& stream = model->device().stream();
      Parameter& weight = *model->inspect().parameter("1.weight").parameter;
      const Vector want = random_vector(35, 3);
      model->inspect().assign(weight, make(model->device(), DType::f64, Shape{7, 5}, want), stream);
      EXPECT_EQ(get(model->inspect().gather(weight, stream)), want);
      Vector doubled = want;
      for (double& value : doubled) value *= 2;
      const Tensor whole = make(model->device(), DType::f64, Shape{7, 5}, doubled);
      model->inspect().assign(weight, root.rank() == 1 ? whole : slice(whole, weight.box()), stream);
      EXPECT_EQ(get(model->inspect().gather(weight, stream)), doubled);
      expect_refusal(
          Code::invalid_argument,
          [&] {
            model->inspect().assign(weight, make(model->device(), DType::f64, Shape{5, 7}, want), stream);
          },
          {"1.weight", "[7, 5]", "[5, 7]"});
    });
}

}  // namespace
}  // namespace gangway::test
