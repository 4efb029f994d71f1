// Shard groups: the loop of another runtime, its views, and its refusals.
#include "parallel/shard_group.h"

#include <cmath>

#include "base/config.h"
#include "parallel/parallel_testing.h"
#include "support/deferred/deferred.h"

namespace gangway::test {
namespace {

std::vector<GroupParameter> parameters(DType dtype = DType::f64) {
  return {
      {.name = "w", .shape = Shape{5, 3}, .dtype = dtype, .init = Init::normal(1)},
      {.name = "b", .shape = Shape{7}, .dtype = dtype, .init = Init::ones()},
      {.name = "frozen", .shape = Shape{2, 2}, .dtype = dtype, .init = Init::zeros(), .trainable = false}};
}

Tensor gradient_of(Device& device, int rank, int microbatch, DType dtype = DType::f64) {
  return make(device, dtype, Shape{5, 3}, random_vector(15, static_cast<uint32_t>(100 * microbatch + rank)));
}

// On a CPU two replicas open a region each, and there is memory for only one. On a device one rank lacks
// memory for itself.
TEST(ShardGroup, OutOfMemoryOnOneReplicaIsReportedToAllRanks) {
  if (on_cpu() && !config().shared_regions)
    GTEST_SKIP() << "there are no regions: every rank's rows are its own";
  GangOptions few = thread_rank_options();
  if (on_cpu()) few.memory_limit = uint64_t{24} << 20;
  run_ranks(
      4,
      [](Gang& root) {
        if (!on_cpu() && root.rank() == 2) deferred::set_memory_limit(root.device(), uint64_t{12} << 20);
        const auto gangs = mesh_of(root, 2);
        const auto make = [&](int64_t rows) {
          return make_shard_group(
              gangs, "g",
              {{.name = "w", .shape = Shape{rows, 1024}, .init = Init::ones(), .trainable = false}},
              ShardOptions{}, 1);
        };
        const Error error = expect_refusal(Code::out_of_memory, [&] { make(4 << 10); }, {"are wanted"});
        EXPECT_FALSE(root.error().has_value()) << error.message();
        const auto fits = make(1 << 10);  // the memory that the other replica had taken is free again
        fits->unshard({}, root.device().stream());
        EXPECT_EQ(get(fits->view(0, Part::full_value))[1023], 1);
        fits->reshard(root.device().stream());
      },
      few);
}

TEST(ShardGroup, ReduceAddsTheSumOverAllDataRanks) {
  for (const int ranks : {1, 2, 4})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      for (const auto& [replicas, offload] : {std::pair{1, false}, {2, false}, {1, true}, {2, true}}) {
        if (ranks % replicas != 0 || (offload && strategy == Strategy::no_shard)) continue;
        Vector want(15);
        for (int r = 0; r < ranks; ++r)
          for (int m = 0; m < 4; ++m) {
            const Vector g = random_vector(15, static_cast<uint32_t>(100 * m + r));
            for (size_t i = 0; i < 15; ++i) want[i] += g[i];
          }
        run_ranks(ranks, [&, replicas = replicas, offload = offload](Gang& root) {
          ShardOptions options;
          options.strategy = strategy;
          options.cpu_offload = offload;
          const auto group = make_shard_group(mesh_of(root, replicas), "g", parameters(), options, 3);
          const auto model = model_from_groups({group});
          Stream& stream = root.device().stream();
          for (int step = 0; step < 2; ++step) {
            for (int m = 0; m < 4; ++m) {
              group->unshard({}, stream);
              if (m % 2 == 0) {
                group->add_gradient(0, gradient_of(root.device(), root.rank(), m), stream);
              } else {  // in place
                const Tensor full = group->view(0, Part::full_gradient);
                const Vector g = random_vector(15, static_cast<uint32_t>(100 * m + root.rank()));
                Vector sum = get(full);
                for (size_t i = 0; i < 15; ++i) sum[i] += g[i];
                put(full, sum);
              }
              group->reshard(stream);
              if (m == 1) group->reduce(stream);  // reductions add up
            }
            group->reduce(stream);
            EXPECT_LE(normwise(get(model->inspect().gather_gradient(
                                   *model->inspect().parameter("g.w").parameter, stream)),
                               want),
                      1e-12);
            EXPECT_EQ(
                get(model->inspect().gather_gradient(*model->inspect().parameter("g.b").parameter, stream)),
                Vector(7))
                << "not added to";
            model->run().begin_update(stream);
            model->run().end_update(stream);
            EXPECT_EQ(get(group->view(0, Part::gradient)),
                      Vector(static_cast<size_t>(group->view(0, Part::gradient).count())))
                << "the update emptied it";
          }
        });
      }
}

TEST(ShardGroup, FullValuesFollowTheUpdateAndCopiesStay) {
  for (const auto& [compute, offload] : {std::pair{DType{}, false},
                                         {DType::bf16, false},
                                         {DType::f16, false},
                                         {DType{}, true},
                                         {DType::bf16, true}})
    run_ranks(3, [&, compute = compute, offload = offload](Gang& root) {
      ShardOptions options;
      options.param_dtype = compute;
      options.cpu_offload = offload;
      const auto group = make_shard_group(mesh_of(root), "g", parameters(DType::f32), options, 3);
      Stream& stream = root.device().stream();
      const Tensor copy = Tensor::allocate(root.device().allocator(), DType::f32, Shape{5, 3});
      const Tensor into[] = {copy, Tensor::allocate(root.device().allocator(), DType::f32, Shape{7}),
                             Tensor::allocate(root.device().allocator(), DType::f32, Shape{2, 2})};
      const WorkPtr ahead = group->unshard_async(stream);
      ahead->wait(Deadline::never());
      group->unshard(into, stream);
      EXPECT_EQ(group->view(0, Part::full_value).dtype(), compute == DType{} ? DType::f32 : compute);
      const Vector before = get(copy);
      EXPECT_EQ(get(group->view(0, Part::full_value)), before);
      group->reshard(stream);
      group->begin_update(stream);
      const Tensor own = group->view(0, Part::value);
      EXPECT_EQ(own.dtype(), DType::f32);
      Vector rows = get(own);
      for (double& x : rows) x *= 2;
      put(own, rows);
      group->end_update(stream);
      group->unshard({}, stream);
      Vector twice = before;
      for (double& x : twice) x *= 2;
      EXPECT_EQ(get(group->view(0, Part::full_value)), twice);
      EXPECT_EQ(get(copy), before);
      group->reshard(stream);
    });
}

TEST(ShardGroup, RefusalsNameGroupAndParameter) {
  run_ranks(2, [](Gang& root) {
    const auto gangs = mesh_of(root);
    const auto refuse = [&](std::vector<GroupParameter> p, std::initializer_list<const char*> parts) {
      expect_refusal(
          Code::invalid_argument, [&] { make_shard_group(gangs, "g", p, {}, 1); }, parts);
    };
    refuse({}, {"group g", "no parameters"});
    auto twice = parameters();
    twice[1].name = "w";
    refuse(twice, {"\"w\"", "twice"});
    refuse(parameters(DType::bf16), {"w", "bf16"});
    const auto group = make_shard_group(gangs, "g", parameters(), {}, 1);
    Stream& stream = root.device().stream();
    expect_refusal(Code::invalid_state, [&] { group->view(0, Part::full_value); },
                   {"g.w", "unshard comes first"});
    expect_refusal(Code::invalid_state, [&] { group->view(0, Part::full_gradient); }, {"g.w"});
    expect_refusal(Code::invalid_state, [&] { group->view(2, Part::gradient); }, {"g.frozen", "frozen"});
    expect_refusal(Code::invalid_argument, [&] { group->view(3, Part::value); }, {"parameter 3", "[0, 3)"});
    expect_refusal(Code::invalid_argument,
                   [&] { group->add_gradient(1, gradient_of(root.device(), 0, 0), stream); },
                   {"g.b", "[7]", "[5, 3]"});
    expect_refusal(Code::invalid_argument, [&] { group->unshard(std::vector<Tensor>(2), stream); },
                   {"2 tensors", "3"});
    expect_refusal(Code::invalid_argument, [&] { model_from_groups({group, group}); }, {"g", "twice"});
    expect_refusal(Code::invalid_argument, [&] { model_from_groups({}); }, {"no groups"});
    const auto other = make_shard_group(nullptr, "other", parameters(), {}, 1);
    expect_refusal(Code::invalid_argument,
                   [&] {
                     model_from_groups({group, other});
                   },
                   {"g", "other", "gangs"});
    expect_refusal(Code::invalid_state,
                   [&] {
                     group->unshard({}, stream);
                     group->begin_update(stream);
                   },
                   {"parameter group g", "unsharded"});
    group->reshard(stream);
  });
}

TEST(ShardGroup, AGroupWithoutANameLeavesItsParametersTheirOwnNames) {
  run_ranks(2, [](Gang& root) {
    const auto gangs = mesh_of(root);
    const auto group = make_shard_group(gangs, "", parameters(), {}, 1);
    EXPECT_EQ(group->parameters()[0].name, "w");
    EXPECT_EQ(group->parameters()[0].parameter->full_name, "w");
    const auto model = model_from_groups({group});
    EXPECT_EQ(model->inspect().parameters()[0].name, "w");
    auto same = parameters();
    same.resize(1);
    const auto inner = make_shard_group(gangs, "layer", same, {}, 1);
    EXPECT_EQ(model_from_groups({group, inner})->inspect().parameters().back().name, "layer.w");
    same[0].name = "v";
    const auto beside = make_shard_group(gangs, "", same, {}, 1);
    EXPECT_EQ(model_from_groups({group, beside})->inspect().parameters().back().name, "v");
    same[0].name = "layer.w";
    const auto other = make_shard_group(gangs, "", same, {}, 1);
    expect_refusal(Code::invalid_argument,
                   [&] {
                     model_from_groups({inner, other});
                   },
                   {"layer.w", "another group", "a name of its own"});
  });
}

// A tensor that was exported keeps its buffer, so later work does not change it.
TEST(ShardGroup, HeldViewsOfGatheredValuesAreNotReused) {
  run_ranks(2, [](Gang& root) {
    const auto group = make_shard_group(mesh_of(root), "g", parameters(), {}, 1);
    Stream& stream = root.device().stream();
    group->unshard({}, stream);
    const Tensor held = group->view(0, Part::full_gradient);
    group->reshard(stream);
    put(held, Vector(15, 4));
    group->reduce(stream);
    group->unshard({}, stream);
    EXPECT_EQ(get(group->view(0, Part::full_gradient)), Vector(15)) << "a new, empty one";
    EXPECT_EQ(get(held), Vector(15, 4));
    group->reshard(stream);
  });
}

// A step would take them as zero, and a later one would count them.
TEST(ShardGroup, FullGradientsThatAreNotReducedAreRefusedByEveryUpdate) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [](Gang& root) {
      const auto gangs = mesh_of(root);
      const auto reduced = make_shard_group(gangs, "reduced", parameters(), {}, 1);
      const auto forgotten = make_shard_group(gangs, "forgotten", parameters(), {}, 1);
      const auto model = model_from_groups({reduced, forgotten});
      Stream& stream = root.device().stream();
      const auto add = [&](ShardGroup& group) {
        group.unshard({}, stream);
        group.add_gradient(0, make(root.device(), DType::f64, Shape{5, 3}, Vector(15, 1)), stream);
        group.reshard(stream);
      };
      add(*reduced);
      if (root.rank() == 0) add(*forgotten);  // a rank of which the others do not know
      if (root.rank() != 0) forgotten->unshard({}, stream), forgotten->reshard(stream);
      reduced->reduce(stream);
      const auto refused = [&](auto&& call) {
        expect_refusal(Code::invalid_state, call,
                       {"\"forgotten\"", "forgotten.w", "not reduced", "zero_grad"});
      };
      refused([&] { model->run().clip_gradients(1, 2, stream); });
      refused([&] { forgotten->begin_update(stream); });
      forgotten->reduce(stream);
      EXPECT_DOUBLE_EQ(model->run().clip_gradients(100, 2, stream),
                       std::sqrt(15.0 * root.size() * root.size() + 15));
      add(*forgotten);
      model->run().zero_gradients(stream);
      forgotten->begin_update(stream);
      forgotten->end_update(stream);
      forgotten->reduce(stream);
      EXPECT_EQ(model->run().gradient_norm(2, stream), 0) << "dropped";
    });
}

TEST(ShardGroup, TiedParametersHaveEveryNameAndBuffersKeepTheirDtypeInFiles) {
  run_ranks(2, [](Gang& root) {
    std::vector<GroupParameter> all = parameters(DType::f32);
    all[0].aliases = {"head"};
    all[1].is_buffer = true;
    const auto group = make_shard_group(mesh_of(root), "g", all, {}, 1);
    const auto model = model_from_groups({group});
    EXPECT_EQ(model->inspect().parameter("g.head").parameter, model->inspect().parameter("g.w").parameter);
    EXPECT_EQ(model->inspect().parameters().size(), 3u);
    EXPECT_EQ(model->inspect().saved().size(), 4u);
    EXPECT_FALSE(model->inspect().parameter("g.b").parameter->trainable);
    all[0].aliases = {"b"};
    expect_refusal(Code::invalid_argument, [&] { make_shard_group(mesh_of(root), "g", all, {}, 1); },
                   {"\"b\" stands twice"});
  });
}

TEST(ShardGroup, ParametersWithoutRowsNeedNoMemory) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    run_ranks(2, [&](Gang& root) {
      ShardOptions options;
      options.strategy = strategy;
      options.param_dtype = DType::bf16;
      const auto group = make_shard_group(
          mesh_of(root), "g", {{.name = "none", .shape = Shape{0, 8}, .init = Init::ones()}}, options, 1);
      Stream& stream = root.device().stream();
      group->unshard({}, stream);
      for (const Part part : {Part::value, Part::gradient, Part::full_value, Part::full_gradient})
        EXPECT_EQ(group->view(0, part).count(), 0);
      const MemoryUse use = model_from_groups({group})->inspect().memory();
      EXPECT_EQ(
          use.master + use.region_rows + use.gradient_shards + use.gathered + use.full_gradients + use.copies,
          0u);
      group->reduce(stream);
      group->reshard(stream);
      group->begin_update(stream);
      group->end_update(stream);
    });
}

TEST(ShardGroup, GradientsComeInEveryFloatingDtypeAndAreSummedInTheMasters) {
  run_ranks(2, [](Gang& root) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      ShardOptions options;
      if (dtype == DType::bf16 || dtype == DType::f16) options.param_dtype = dtype;
      const auto group = make_shard_group(mesh_of(root), "g", parameters(DType::f32), options, 1);
      Stream& stream = root.device().stream();
      group->unshard({}, stream);
      for (const double x : {0.5, 1024.0})
        group->add_gradient(0, make(root.device(), dtype, Shape{5, 3}, Vector(15, x)), stream);
      group->reshard(stream);
      group->reduce(stream);
      const Tensor own = group->view(0, Part::gradient);
      EXPECT_EQ(own.dtype(), DType::f32);
      EXPECT_EQ(get(own), Vector(static_cast<size_t>(own.count()), 2 * 1024.5)) << name(dtype);
    }
  });
}

TEST(ShardGroup, ViewsOfFullGradientsStayUntilReshard) {
  run_ranks(2, [](Gang& root) {
    const auto group = make_shard_group(mesh_of(root), "g", parameters(), {}, 1);
    Stream& stream = root.device().stream();
    group->unshard({}, stream);
    const Tensor view = group->view(0, Part::full_gradient);
    for (int times = 1; times <= 2; ++times) {
      Vector more = get(view);
      for (double& x : more) x += 1;
      put(view, more);
      group->reduce(stream);
      ASSERT_EQ(group->view(0, Part::full_gradient).raw(), view.raw());
      EXPECT_EQ(get(group->view(0, Part::full_gradient)), Vector(15)) << "reduce emptied it";
      const Vector own = get(group->view(0, Part::gradient));
      EXPECT_EQ(own, Vector(own.size(), 2 * times));
    }
    group->reshard(stream);
    group->reduce(stream);
  });
}

}  // namespace
}  // namespace gangway::test
