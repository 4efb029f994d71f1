// The memory plan that the meta device makes over a fake gang equals the bytes that a run takes, on every
// rank.
#include "nn/small_llama.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

DecoderOptions config() {
  DecoderOptions c = small_llama();
  c.layers = 3;
  return c;
}

std::vector<uint64_t> fields(const MemoryUse& m) {
  return {m.master,         m.copies,    m.region_rows, m.gradient_shards, m.gathered,
          m.full_gradients, m.optimizer, m.activations, m.gradients,       m.temporaries};
}

// Runs two steps of two microbatches each, and an evaluation.
MemoryUse use(Gang& root, const ParallelOptions& options, int replicas, bool regions, bool frozen) {
  Model model(make_decoder(config()), mesh_of(root, replicas));
  if (frozen) model.root().child(1).child(0).parameters()[0]->trainable = false;
  model.fsdp().use_regions(regions);
  model.build().parallelize(options);
  Stream& stream = model.device().stream();
  const bool meta = model.device().kind() == DeviceKind::meta;
  const auto ids = [&](int64_t rows) {
    const Shape shape{rows, 12};
    return meta ? Tensor::allocate(model.device().allocator(), DType::i64, shape)
                : make_ids(model.device(), shape, std::vector<int64_t>(static_cast<size_t>(12 * rows), 7));
  };
  Context ctx = model.run().context(stream);
  ctx.loss_scale = 0.1;
  for (int step = 0; step < 2; ++step) {
    for (int m = 0; m < 2; ++m) {
      model.run().set_is_last_backward(m == 1);
      const Tensor inputs[] = {ids(2), ids(2)};
      model.run().forward(ctx, inputs, &model.frame(0));
      model.run().backward(ctx, {}, model.frame(0));
      model.frame(0).reset();
    }
    model.run().gradient_norm(2, stream);
    model.run().begin_update(stream);
    model.run().end_update(stream);
  }
  const Tensor inputs[] = {ids(3), ids(3)};
  model.run().forward(ctx, inputs, nullptr);
  model.temporaries().reset();
  return model.inspect().memory();
}

MemoryUse plan(int rank, int ranks, const ParallelOptions& options, int replicas, bool regions, bool frozen) {
  GangOptions meta;
  meta.device = "meta";
  const auto root = Gang::create_fake(rank, ranks, meta, true, false);
  return use(*root, options, replicas, regions, frozen);
}

TEST(Memory, PlanOnMetaEqualsTheRunExactly) {
  struct Case {
    int ranks, replicas;
    bool regions, frozen;
    int post_forward_ranks = 0;  // reshard_after_forward with FULL_SHARD; 0: see below
  };
  for (const Case& c : {Case{1, 1, true, false}, Case{2, 1, true, false}, Case{3, 1, false, true},
                        Case{4, 2, true, false}, Case{4, 1, false, false, 2}})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      for (const RecomputeKind recompute :
           {RecomputeKind::none, RecomputeKind::full, RecomputeKind::selective})
        for (const DType param : {DType{}, DType::bf16}) {
          ParallelOptions options;
          options.shard.strategy = strategy;
          // The cases with bf16 reshard at another time than the strategy does by itself.
          if (param == DType::bf16)
            options.shard.reshard_after_forward = strategy == Strategy::full_shard ? 0 : 1;
          if (strategy == Strategy::full_shard && c.post_forward_ranks > 0)
            options.shard.reshard_after_forward = c.post_forward_ranks;
          options.shard.param_dtype = param;
          if (param == DType::bf16) options.shard.reduce_dtype = DType::bf16;
          options.shard.bucket_cap_mb = 0.01;
          options.recompute.kind = recompute;
          std::vector<MemoryUse> planned;
          for (int r = 0; r < c.ranks; ++r)
            planned.push_back(plan(r, c.ranks, options, c.replicas, c.regions, c.frozen));
          run_ranks(c.ranks, [&](Gang& root) {
            const MemoryUse taken = use(root, options, c.replicas, c.regions, c.frozen);
            const MemoryUse& expected = planned[static_cast<size_t>(root.rank())];
            EXPECT_EQ(fields(taken), fields(expected))
                << "ranks " << c.ranks << " strategy " << static_cast<int>(strategy) << " recompute "
                << static_cast<int>(recompute) << " param " << name(param);
            EXPECT_EQ(taken.total(), expected.total());
          });
        }
}

// The formula for rows that divide evenly and need no padding: 4 / W bytes per parameter for the rows of the
// region, the same for the gradients, and two parameter groups of full gradients. Nothing is gathered.
TEST(Memory, FullShardTakesWhatTheFormulaSays) {
  const Reference reference("llama_parity");
  uint64_t all = 0, largest = 0, block = 0;
  for (const NamedParameter& p : named_parameters(*make_decoder(reference.config))) {
    all += static_cast<uint64_t>(p.parameter->shape.count());
    if (p.name.starts_with("model.layers.0.")) block += static_cast<uint64_t>(p.parameter->shape.count());
  }
  const uint64_t head = 64 * 32 + 32;
  largest = std::max(block, head);
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](Gang& root) {
      const auto model = make_model(reference, mesh_of(root), ParallelOptions{});
      const MemoryUse use = model->inspect().memory();
      EXPECT_EQ(ranks == 1 ? use.master : use.region_rows, 4 * all / static_cast<uint64_t>(ranks));
      EXPECT_EQ(ranks == 1 ? use.region_rows : use.master, 0u);
      EXPECT_EQ(use.gradient_shards, 4 * all / static_cast<uint64_t>(ranks));
      EXPECT_EQ(use.gathered, 0u);
      EXPECT_EQ(use.full_gradients, ranks == 1 ? 0u : 2 * 4 * largest);
    });
}

}  // namespace
}  // namespace gangway::test
