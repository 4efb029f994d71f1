// Refusals of wrapping and of materialize: calls out of order, options, degrees. All ranks agree on them, and
// nothing has changed.
#include "nn/small_llama.h"
#include "parallel/reference_run.h"
#include "parallel/shard_group.h"

namespace gangway::test {
namespace {

TEST(FullyShard, CallsOutOfOrderNameTheMissingCall) {
  run_ranks(2, [](Gang& root) {
    const ShardOptions options;
    Model model(make_decoder(small_llama()), mesh_of(root));
    Stream& stream = model.device().stream();
    expect_refusal(Code::not_found, [&] { model.build().fully_shard("model.blocks.*", options); },
                   {"model.blocks.*"});
    expect_refusal(Code::invalid_state, [&] { model.build().materialize(1, DType::f32); }, {"fully_shard"});
    expect_refusal(Code::invalid_state, [&] { model.run().begin_update(stream); },
                   {"materialize comes first"});
    expect_refusal(Code::invalid_argument, [&] { model.build().fully_shard("lm_head", options); },
                   {"lm_head"});
    expect_refusal(Code::invalid_argument, [&] { model.build().fully_shard("**", options); },
                   {"(root)", "inside"});
    model.build().fully_shard("model.layers.*", options);
    expect_refusal(Code::invalid_state, [&] { model.build().fully_shard("model.layers.0", options); },
                   {"model.layers.0", "already"});
    expect_refusal(Code::invalid_state, [&] { model.build().fully_shard("model.layers.1.mlp", options); },
                   {"model.layers.1.mlp", "inside out"});
    expect_refusal(Code::invalid_state, [&] { model.build().recompute({}); }, {"recompute comes before"});
    expect_refusal(Code::invalid_state, [&] { model.build().materialize(1, DType::f32); },
                   {"model.embed_tokens.weight"});
    model.build().fully_shard("", options);
    expect_refusal(Code::invalid_state, [&] { model.build().fully_shard("model.embed_tokens", options); },
                   {"(root)", "root last"});
    expect_refusal(Code::invalid_argument, [&] { model.build().materialize(1, DType::bf16); },
                   {"master_dtype", "bf16"});
    model.build().materialize(1, DType::f32);
    expect_refusal(Code::invalid_state, [&] { model.build().fully_shard("", options); }, {"materialised"});
    expect_refusal(Code::invalid_state, [&] { model.build().parallelize({}); }, {"materialised"});
    expect_refusal(Code::not_found, [&] { model.inspect().parameter("lm_head.bias"); }, {"lm_head.bias"});
  });
}

TEST(FullyShard, TiedParameterOverTwoParameterGroupsIsNamed) {
  run_ranks(2, [](Gang& root) {
    Model model(make_decoder(small_llama(/*tied=*/true)), mesh_of(root));
    expect_refusal(Code::invalid_argument, [&] { model.build().fully_shard("model.embed_tokens", {}); },
                   {"model.embed_tokens.weight", "tied"});
    model.build().parallelize({});
    EXPECT_EQ(model.inspect().parameter("lm_head.weight").parameter,
              model.inspect().parameter("model.embed_tokens.weight").parameter);
  });
}

TEST(FullyShard, OptionsAreRefusedByNameBeforeAnythingChanges) {
  run_ranks(2, [](Gang& root) {
    Model model(make_decoder(small_llama()), mesh_of(root));
    const auto refuse = [&](Code code, auto change, std::initializer_list<const char*> parts) {
      ParallelOptions options;
      change(options);
      expect_refusal(
          code, [&] { model.build().parallelize(options); }, parts);
    };
    refuse(Code::invalid_argument,
           [](auto& o) {
             o.shard.cpu_offload = true;
             o.shard.strategy = Strategy::no_shard;
           },
           {"cpu_offload is 1", "NO_SHARD"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.reshard_after_forward = 3; },
           {"reshard_after_forward is 3", "no factor of the 2 ranks"});
    refuse(Code::invalid_argument,
           [](auto& o) {
             o.shard.reshard_after_forward = 2;
             o.shard.strategy = Strategy::no_shard;
           },
           {"reshard_after_forward is 2", "NO_SHARD"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.reshard_after_forward = -2; },
           {"reshard_after_forward is -2"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.param_dtype = DType::i64; }, {"param_dtype is i64"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.param_dtype = DType::f64; }, {"param_dtype is f64"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.reduce_dtype = DType::i32; },
           {"reduce_dtype is i32"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.prefetch_forward = -1; },
           {"prefetch_forward is -1"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.bucket_cap_mb = 0; }, {"bucket_cap_mb is 0"});
    refuse(Code::invalid_argument, [](auto& o) { o.shard.strategy = static_cast<Strategy>(7); },
           {"strategy 7"});
    refuse(Code::invalid_argument,
           [](auto& o) {
             o.recompute = {RecomputeKind::every, 0, 1};
           },
           {"every is 0"});
    refuse(Code::invalid_argument,
           [](auto& o) {
             o.recompute = {RecomputeKind::ratio, 2, 1.5};
           },
           {"ratio is 1.5"});
    refuse(Code::invalid_argument, [](auto& o) { o.master_dtype = DType::bf16; }, {"master_dtype is bf16"});
    model.build().parallelize({});
  });
}

TEST(FullyShard, OneRanksRefusalComesBackOnEveryRank) {
  run_ranks(3, [](Gang& root) {
    Model model(make_decoder(small_llama()), mesh_of(root));
    ParallelOptions options;
    if (root.rank() == 1) options.shard.bucket_cap_mb = -1;
    expect_refusal(Code::invalid_argument, [&] { model.build().parallelize(options); },
                   {"bucket_cap_mb is -1"});
    options.shard.bucket_cap_mb = 1;
    model.build().parallelize(options);
  });
}

TEST(FullyShard, TwoParametersOfOneNameAreRefused) {
  CustomOptions options;
  options.name = "Twice";
  options.parameters = {{"0.weight", Shape{3}, Init::ones()}};
  options.children = {{"0", make_linear(2, 2, false)}};
  expect_refusal(Code::invalid_argument, [&] { Model(make_custom(options, nullptr), nullptr); },
                 {"0.weight", "[3]", "[2, 2]"});
}

TEST(FullyShard, ProductsOfOneParameterGroupMustHaveOneDtype) {
  run_ranks(2, [](Gang& root) {
    Model model(make_sequential({make_linear(2, 2, true), make_linear(2, 2, false)}), mesh_of(root));
    ParallelOptions options;
    options.shard.dtype_rules = {{"0.weight", DType::bf16}};
    expect_refusal(Code::invalid_argument, [&] { model.build().parallelize(options); },
                   {"0.weight bf16", "0.bias f32"});
    options.shard.dtype_rules = {{"**", DType::bf16}};
    model.build().parallelize(options);
  });
}

TEST(FullyShard, DegreesThatAModelIsNotMadeForAreRefused) {
  run_ranks(2, [](Gang& root) {
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp}) {
      MeshOptions mesh;
      (axis == Axis::tp ? mesh.tp : axis == Axis::cp ? mesh.cp : mesh.pp) = 2;
      const auto gangs = create_gangs(root.shared_from_this(), mesh);
      Model model(axis == Axis::pp ? make_linear(2, 2, false) : make_sequential({make_linear(2, 2, false)}),
                  gangs);
      expect_refusal(axis == Axis::cp ? Code::invalid_argument : Code::not_supported,
                     [&] { model.build().parallelize({}); },
                     {axis == Axis::cp ? "holds no attention" : name(axis)});
      expect_refusal(axis == Axis::pp ? Code::not_supported : Code::invalid_state,
                     [&] { model.build().fully_shard("", {}); },
                     {name(axis), axis == Axis::tp   ? "tensor_parallel comes first"
                                  : axis == Axis::cp ? "context_parallel comes first"
                                                     : "2"});
      expect_refusal(Code::not_supported,
                     [&] {
                       make_shard_group(gangs, "g", {{.name = "w", .shape = Shape{2}, .init = Init::ones()}},
                                        {}, 1);
                     },
                     {name(axis)});
    }
  });
}

TEST(FullyShard, TrainingOverAFakeGangIsRefusedOutsideMeta) {
  const auto root = Gang::create_fake(0, 2, GangOptions{}, false);
  Model model(make_sequential({make_linear(2, 2, false)}), mesh_of(*root));
  model.build().parallelize({});
  Context ctx = model.run().context(model.device().stream());
  const Tensor x = make(model.device(), DType::f32, Shape{1, 2}, {1, 2});
  model.run().forward(ctx, {&x, 1}, nullptr);  // an evaluation is allowed, because it is no training
  expect_refusal(Code::not_supported,
                 [&] {
                   model.run().forward(ctx, {&x, 1}, &model.frame(0));
                 },
                 {"fake gang of 2"});
}

TEST(FullyShard, NoRankUpdatesWhileTheForwardOfOneAwaitsItsBackward) {
  run_ranks(2, [](Gang& root) {
    Model model(make_decoder(small_llama()), mesh_of(root));
    model.build().parallelize({});
    Stream& stream = model.device().stream();
    Parameter& weight = *model.inspect().parameters()[0].parameter;
    const Tensor whole = model.inspect().gather(weight, stream);
    std::shared_ptr<const void> forward;
    if (root.rank() == 1) forward = model.run().await_backward();
    expect_refusal(Code::invalid_state, [&] { model.inspect().assign(weight, whole, stream); },
                   {"awaits its backward"});
    forward.reset();
    model.inspect().assign(weight, whole, stream);
  });
}

TEST(FullyShard, GradientsAreClippedAndGatheredWithinTheirLimits) {
  run_ranks(2, [](Gang& root) {
    Model model(make_decoder(small_llama()), mesh_of(root));
    model.build().parallelize({});
    Stream& stream = model.device().stream();
    const Parameter& weight = *model.inspect().parameters()[0].parameter;
    for (const double p : {0.0, -1.0, 65.0, static_cast<double>(NAN)})
      expect_refusal(Code::invalid_argument, [&] { model.run().clip_gradients(1, p, stream); }, {"p = "});
    expect_refusal(Code::invalid_argument, [&] { model.run().clip_gradients(root.rank() - 1, 2, stream); },
                   {"max_norm is -1"});
    EXPECT_EQ(model.run().clip_gradients(1, 2, stream), 0);
    EXPECT_EQ(model.inspect().gather_gradient(weight, stream).shape(), weight.shape);
  });
}

}  // namespace
}  // namespace gangway::test
