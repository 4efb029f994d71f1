// Ranks that would train different models, or whose replicas start from different values, get an error with
// both values before the first step. The gangs go on working.
#include "base/expect_error.h"
#include "nn/small_llama.h"
#include "parallel/reference_run.h"
#include "parallel/shard_group.h"

namespace gangway::test {
namespace {

struct Wanted {
  DecoderOptions config = small_llama();
  ParallelOptions options;
  const char* frozen = nullptr;  // a pattern of names
  Wanted() { options.shard.strategy = Strategy::no_shard; }
};

ModulePtr llama_of(const Wanted& wanted) {
  ModulePtr module = make_decoder(wanted.config);
  for (const NamedParameter& p : named_parameters(*module))
    if (wanted.frozen != nullptr && path_matches(wanted.frozen, p.name)) p.parameter->trainable = false;
  return module;
}

struct Difference {
  void (*change)(Wanted&);
  const char* of_rank_0;
  const char* of_other;
};

const Difference kDifferences[] = {
    {[](Wanted& w) { w.options.seed = 7; }, "seed 0", "seed 7"},
    {[](Wanted& w) { w.options.master_dtype = DType::f64; }, "master_dtype f32", "master_dtype f64"},
    {[](Wanted& w) { w.config.rope.theta = 500000; }, "model.layers.0.self_attn.rope_theta 10000",
     "model.layers.0.self_attn.rope_theta 5e+05"},
    {[](Wanted& w) { w.config.rope.factor = 1.0000000000000002; }, "model.layers.0.self_attn.rope_factor 1",
     "model.layers.0.self_attn.rope_factor 1.0000000000000002"},
    {[](Wanted& w) { w.config.rope.original_positions = 4096; },
     "model.layers.0.self_attn.rope_original_positions 8192",
     "model.layers.0.self_attn.rope_original_positions 4096"},
    {[](Wanted& w) { w.config.eps = 1e-6; }, "model.layers.0.input_layernorm.eps 1e-05",
     "model.layers.0.input_layernorm.eps 1e-06"},
    {[](Wanted& w) { w.config.max_positions = 11; }, "max_positions 12", "max_positions 11"},
    {[](Wanted& w) {
       // The projections have the same shapes.
       w.config.heads = 2;
       w.config.kv_heads = 1;
     },
     "model.layers.0.self_attn.head_dim 6", "model.layers.0.self_attn.head_dim 12"},
    {[](Wanted& w) { w.config.ffn = 41; }, "model.layers.0.mlp.gate_proj.weight f32 [40, 24]",
     "model.layers.0.mlp.gate_proj.weight f32 [41, 24]"},
    {[](Wanted& w) { w.config.deviation = 0.01; }, "model.embed_tokens.weight deviation 0.02",
     "model.embed_tokens.weight deviation 0.01"},
    {[](Wanted& w) { w.frozen = "lm_head.weight"; }, "lm_head.weight f32 [17, 24]",
     "lm_head.weight f32 [17, 24] frozen"},
    {[](Wanted& w) { w.config.layers = 1; }, "layers 2", "layers 1"},
    {[](Wanted& w) { w.options.shard.param_dtype = DType::bf16; }, "param_dtype none", "param_dtype bf16"},
    {[](Wanted& w) {
       w.options.shard.dtype_rules = {{"lm_head.weight", DType::bf16}};
     },
     "prefetch_forward 1", "rule \"lm_head.weight\" bf16"},
    {[](Wanted& w) { w.options.shard.strategy = Strategy::full_shard; }, "strategy 2", "strategy 0"},
    {[](Wanted& w) { w.options.shard.bucket_cap_mb = 1; }, "bucket_cap_mb 25", "bucket_cap_mb 1"},
    {[](Wanted& w) { w.options.recompute.kind = RecomputeKind::full; }, "model.layers.0.kind Block",
     "model.layers.0.kind Recompute"},
    {[](Wanted& w) { w.options.recompute.kind = RecomputeKind::selective; }, "selective recomputation off",
     "selective recomputation on"},
};

TEST(DifferingRanks, ModelsAndOptionsAreMismatchesWithBothValues) {
  for (const int ranks : {2, 3})
    run_ranks(ranks, [&](Gang& root) {
      const std::shared_ptr<Gangs> gangs = mesh_of(root);
      for (const Difference& difference : kDifferences) {
        Wanted wanted;
        if (root.rank() == root.size() - 1) difference.change(wanted);
        Model model(llama_of(wanted), gangs);
        expect_error(Code::mismatch,
                     text("materialize: rank 0 has ", difference.of_rank_0, ", rank ", root.size() - 1,
                          " has ", difference.of_other, "; give all ranks the same"),
                     [&] { model.build().parallelize(wanted.options); });
        EXPECT_FALSE(root.error());
      }
      Model model(llama_of({}), gangs);
      model.build().parallelize(Wanted().options);
      model.inspect().check_replicas(model.device().stream());
    });
}

TEST(DifferingRanks, AModelThatWasRefusedIsParallelizedAgain) {
  run_ranks(2, [](Gang& root) {
    Model model(make_decoder(small_llama()), mesh_of(root));
    ParallelOptions options;
    options.seed = static_cast<uint64_t>(root.rank());
    expect_refusal(Code::mismatch, [&] { model.build().parallelize(options); }, {"seed 0", "seed 1"});
    model.build().parallelize({});
    EXPECT_TRUE(model.materialized());
  });
}

TEST(DifferingRanks, PatternsOfParameterGroupsAreCompared) {
  run_ranks(2, [](Gang& root) {
    Model model(make_decoder(small_llama()), mesh_of(root));
    model.build().fully_shard(root.rank() == 0 ? "model.layers.*" : "model.layers.0", {});
    model.build().fully_shard("", {});
    expect_refusal(Code::mismatch, [&] { model.build().materialize(1, DType::f32); },
                   {"model.layers.1.kind FullyShard", "model.layers.1.kind Block"});
  });
}

GroupParameter weight() { return {.name = "w", .shape = Shape{5, 3}, .init = Init::normal(1)}; }

TEST(DifferingRanks, ShardGroupsAreCompared) {
  run_ranks(2, [](Gang& root) {
    const std::shared_ptr<Gangs> gangs = mesh_of(root);
    const int other = root.rank();
    ShardOptions options;
    options.strategy = Strategy::no_shard;
    GroupParameter frozen = weight(), wider = weight();
    frozen.trainable = other == 0;
    wider.dtype = other == 0 ? DType::f32 : DType::f64;
    const auto refuse = [&](const GroupParameter& p, uint64_t seed,
                            std::initializer_list<const char*> parts) {
      expect_refusal(
          Code::mismatch, [&] { make_shard_group(gangs, "g", {p}, options, seed); }, parts);
    };
    refuse(weight(), static_cast<uint64_t>(3 + other), {"seed 3", "seed 4"});
    refuse(frozen, 3, {"w f32 [5, 3], rank", "w f32 [5, 3] frozen"});
    refuse(wider, 3, {"w f32 [5, 3]", "w f64 [5, 3]"});
    make_shard_group(gangs, "g", {weight()}, options, 3);
  });
}

// Initial values that no option tells.
struct Counting final : Init::Initializer {
  explicit Counting(double first) : first(first) {}
  void fill(int64_t first_row, int64_t, void* out, size_t count, DType) override {
    for (size_t i = 0; i < count; ++i)
      static_cast<float*>(out)[i] = static_cast<float>(first + 3.0 * static_cast<double>(first_row) + i);
  }
  double first;
};

std::shared_ptr<ShardGroup> counted(const std::shared_ptr<Gangs>& gangs, double first, Strategy strategy) {
  GroupParameter p = weight();
  p.init.kind = Init::Kind::fill;
  p.init.initializer = std::make_shared<Counting>(first);
  GroupParameter same = weight();
  same.name = "same";
  ShardOptions options;
  options.strategy = strategy;
  return make_shard_group(gangs, "g", {same, p}, options, 1);
}

TEST(Replicas, DifferentFirstValuesAreReported) {
  run_ranks(3, [](Gang& root) {
    const std::shared_ptr<Gangs> gangs = mesh_of(root);
    expect_error(
        Code::mismatch,
        "materialize: replicas differ: g.w[0, 0] is 1 on rank 0, 2 on rank 2; give all ranks the same first "
        "values, or load a checkpoint on all",
        [&] { counted(gangs, root.rank() == 2 ? 2 : 1, Strategy::no_shard); });
    counted(gangs, 1, Strategy::no_shard);
    counted(gangs, root.rank() == 2 ? 2 : 1, Strategy::full_shard);  // no two ranks hold the same row
  });
}

TEST(Replicas, OverDpReplicateRowsAreCompared) {
  run_ranks(4, [](Gang& root) {
    // Rows 0 to 2 are on ranks 0 and 2, rows 3 and 4 on ranks 1 and 3.
    const std::shared_ptr<Gangs> gangs = mesh_of(root, 2);
    expect_refusal(Code::mismatch, [&] { counted(gangs, root.rank() == 3 ? 9 : 1, Strategy::full_shard); },
                   {"g.w[3, 0] is 10 on rank 1, 18 on rank 3"});
    counted(gangs, 1, Strategy::full_shard);
  });
}

TEST(Replicas, OnDemandTheFirstElementThatDiffersIsReported) {
  for (const DType dtype : {DType::f32, DType::f64})
    run_ranks(4, [&](Gang& root) {
      const std::shared_ptr<Gangs> gangs = mesh_of(root, 2);
      Stream& stream = root.device().stream();
      // More elements than one of the blocks in which ranks compare values.
      GroupParameter big{.name = "big", .shape = Shape{700, 500}, .dtype = dtype, .init = Init::zeros()};
      const auto model = model_from_groups({make_shard_group(gangs, "g", {weight(), big}, {}, 1)});
      model->inspect().check_replicas(stream);
      const Tensor own = model->inspect().parameter("g.big").parameter->shard;
      if (root.rank() == 3) {
        Vector values = get(own);
        values[150'002] = 0.5;  // this replica begins at row 350
        values[160'000] = 1.5;
        put(own, values);
      }
      expect_error(Code::mismatch,
                   "check_replicas: replicas differ: g.big[650, 2] is 0 on rank 1, 0.5 on rank 3; give all "
                   "ranks the same "
                   "first values, or load a checkpoint on all",
                   [&] { model->inspect().check_replicas(stream); });
      if (root.rank() == 3) put(own, Vector(static_cast<size_t>(own.count())));
      model->inspect().check_replicas(stream);
    });
}

TEST(Replicas, ANegativeZeroAndANanAreDifferences) {
  run_ranks(2, [](Gang& root) {
    const auto model = model_from_groups({counted(mesh_of(root), 1, Strategy::no_shard)});
    Stream& stream = root.device().stream();
    const Tensor own = model->inspect().parameter("g.w").parameter->shard;
    Vector values = get(own);
    values[14] = root.rank() == 0 ? 0.0 : -0.0;
    put(own, values);
    expect_refusal(Code::mismatch, [&] { model->inspect().check_replicas(stream); },
                   {"g.w[4, 2] is 0 on rank 0, -0 on"});
    values[14] = std::nan("");
    put(own, values);
    model->inspect().check_replicas(stream);
  });
}

}  // namespace
}  // namespace gangway::test
