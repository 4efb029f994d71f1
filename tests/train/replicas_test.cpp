// A step compares what several ranks must hold equal. A value that one rank has changed alone ends the next
// step on all ranks, before the step changes anything.
#include <cstring>
#include <functional>

#include "parallel/model/mesh_tensors.h"
#include "parallel/shard_group.h"
#include "train/rig.h"

namespace gangway {
namespace {

struct Case {
  const char* name;
  int ranks;
  Strategy strategy = Strategy::no_shard;
  int replicas = 1, tp = 1, cp = 1, pp = 1;
  const char* changed = "lm_head.weight";  // the parameter of which the last rank changes a value
  int peer = 0;                            // the lowest rank with the same values
  DType master = DType::f32;
  DType compute = DType{};
};

const Case kCases[] = {
    {.name = "no_shard", .ranks = 2},
    {.name = "no_shard", .ranks = 4},
    {.name = "no_shard with copies in bf16",
     .ranks = 2,
     .changed = "model.norm.weight",
     .compute = DType::bf16},
    {.name = "no_shard in f64",
     .ranks = 2,
     .changed = "model.layers.1.mlp.down_proj.weight",
     .master = DType::f64},
    {.name = "hsdp", .ranks = 4, .strategy = Strategy::full_shard, .replicas = 2, .peer = 1},
    {.name = "tp",
     .ranks = 2,
     .strategy = Strategy::full_shard,
     .tp = 2,
     .changed = "model.layers.0.input_layernorm.weight"},
    {.name = "dp_shard x tp",
     .ranks = 4,
     .strategy = Strategy::full_shard,
     .tp = 2,
     .changed = "model.norm.weight",
     .peer = 2},
    {.name = "dp_replicate x tp",
     .ranks = 4,
     .strategy = Strategy::full_shard,
     .replicas = 2,
     .tp = 2,
     .peer = 1},
    {.name = "cp without shards", .ranks = 2, .cp = 2},
    {.name = "pp x dp_replicate",
     .ranks = 4,
     .strategy = Strategy::full_shard,
     .replicas = 2,
     .pp = 2,
     .peer = 2},
};

GangsPtr gangs_of(Gang& root, const Case& c) {
  MeshOptions mesh;
  mesh.dp_replicate = c.replicas;
  mesh.tp = c.tp;
  mesh.cp = c.cp;
  mesh.pp = c.pp;
  return create_gangs(root.shared_from_this(), mesh);
}

test::Rig rig_of(Gang& root, const Case& c, const char* kind = "adamw", OptimizerOptions optimizer = {}) {
  ParallelOptions options = test::parallel(c.strategy, c.master);
  options.shard.param_dtype = c.compute;
  test::Rig rig;
  rig.model = test::make_model(make_decoder(test::small_llama()), gangs_of(root, c), options);
  optimizer.lr = 0.01;
  rig.optimizer = make_optimizer(kind, rig.model->inspect().parameters(), optimizer, rig.model->ops(),
                                 make_mesh_tensors(*rig.model));
  return rig;
}

StepResult step_of(const test::Rig& rig, int64_t step, const StepOptions& options = {}) {
  int index = 0, count = 1;
  rig.model->gangs().data_shard(&index, &count);
  return rig.step(test::pattern_batch(*rig.model, 2, 8, 5 * step + 6 * index), options);
}

std::string bits_of(const Tensor& tensor) {
  const test::HostMemory host(tensor);
  return {host.data<char>(), tensor.bytes()};
}
void set_bits(const Tensor& tensor, const std::string& bits) {
  test::HostMemory host(tensor);
  std::memcpy(host.data<char>(), bits.data(), bits.size());
  host.write();
}
std::vector<std::string> all_bits(const Model& model) {
  std::vector<std::string> all;
  for (const NamedParameter& named : const_cast<Model&>(model).inspect().parameters())
    if (named.parameter->shard) all.push_back(bits_of(named.parameter->shard));
  return all;
}

// Changes the last element of the own rows.
template <typename Change>
void change_last(const Tensor& shard, Change&& change) {
  std::string bits = bits_of(shard);
  const auto as = [&](auto value) {
    char* const at = bits.data() + bits.size() - sizeof value;
    std::memcpy(&value, at, sizeof value);
    value = change(value);
    std::memcpy(at, &value, sizeof value);
  };
  if (shard.dtype() == DType::f64)
    as(double{});
  else
    as(float{});
  set_bits(shard, bits);
}

// Changes a value on the last rank, runs `call`, which must be refused on all ranks and change nothing, and
// takes the change back.
template <typename Change, typename Call>
void expect_told(Gang& root, Model& model, const Case& c, const char* step, Change&& change, Call&& call) {
  const int last = root.size() - 1;
  const Tensor shard = model.inspect().parameter(c.changed).parameter->shard;
  const std::string before = root.rank() == last ? bits_of(shard) : "";
  if (root.rank() == last) change_last(shard, change);
  const std::vector<std::string> values = all_bits(model);
  const Error error = test::error_of(call);
  EXPECT_EQ(error.code(), Code::mismatch) << error.message();
  for (const std::string& part : {text(step, ": replicas differ: ", c.changed, "["),
                                  text("on rank ", c.peer, ","), text("on rank ", last)})
    EXPECT_NE(error.message().find(part), std::string::npos) << part << "\n" << error.message();
  EXPECT_EQ(all_bits(model), values);
  EXPECT_FALSE(root.error());
  if (root.rank() == last) set_bits(shard, before);
}

TEST(Replicas, AValueThatOneRankChangesIsToldByTheNextStepToAll) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(text(c.name, ", ", c.ranks, " ranks"));
    test::run_ranks(c.ranks, [&](Gang& root) {
      const test::Rig rig = rig_of(root, c);
      const auto step = [&] { step_of(rig, 1); };
      EXPECT_EQ(step_of(rig, 0).step, 1);
      expect_told(
          root, *rig.model, c, "train_step", [](auto x) { return x + decltype(x){0.5}; }, step);
      expect_told(
          root, *rig.model, c, "train_step", [](auto x) { return std::nextafter(x, decltype(x){9}); }, step);
      for (int64_t later = 1; later < 4; ++later) EXPECT_EQ(step_of(rig, later).step, later + 1);
    });
  }
}

TEST(Replicas, ANanThatAllRanksHoldIsNoDifferenceAndOneThatOneRankHoldsIs) {
  const Case c{.name = "no_shard", .ranks = 2};
  test::run_ranks(2, [&](Gang& root) {
    const test::Rig rig = rig_of(root, c);
    const auto nan = [](auto) { return std::numeric_limits<float>::quiet_NaN(); };
    expect_told(root, *rig.model, c, "train_step", nan, [&] { step_of(rig, 0); });
    change_last(rig.model->inspect().parameter(c.changed).parameter->shard, nan);
    EXPECT_EQ(step_of(rig, 0).skipped, Skip::non_finite);
  });
}

// An optimizer's own step compares, too, whether or not it has other numbers to exchange.
TEST(Replicas, OptimizerStepTellsIt) {
  for (const double most : {0.0, 1.0})
    test::run_ranks(2, [&](Gang& root) {
      const Case c{.name = "group", .ranks = 2, .changed = "g.w"};
      ShardOptions options;
      options.strategy = Strategy::no_shard;
      const GroupParameter w{.name = "w", .shape = Shape{5, 3}, .init = Init::normal(1)};
      const auto model = model_from_groups({make_shard_group(gangs_of(root, c), "g", {w}, options, 1)});
      const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), {}, model->ops());
      StepOptions step;
      step.max_grad_norm = most;
      step.check_finite = false;
      const auto update = [&] { return optimizer_step(*model, *optimizer, step, model->device().stream()); };
      EXPECT_EQ(update().step, 1);
      expect_told(
          root, *model, c, "optimizer_step", [](auto x) { return x + decltype(x){0.5}; }, update);
      EXPECT_EQ(update().step, 2);
    });
}

TEST(Replicas, AFrozenParameterIsLeftToCheckReplicas) {
  test::run_ranks(2, [](Gang& root) {
    const Case c{.name = "no_shard", .ranks = 2};
    test::Rig rig;
    const ModulePtr module = make_decoder(test::small_llama());
    for (const NamedParameter& p : named_parameters(*module)) p.parameter->trainable = p.name != c.changed;
    rig.model = test::make_model(module, gangs_of(root, c), test::parallel(c.strategy, c.master));
    rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
    const Tensor shard = rig.model->inspect().parameter(c.changed).parameter->shard;
    if (root.rank() == 1) change_last(shard, [](auto x) { return x + decltype(x){0.5}; });
    EXPECT_EQ(step_of(rig, 0).step, 1);
    EXPECT_EQ(test::error_of([&] { rig.model->inspect().check_replicas(rig.stream()); }).code(),
              Code::mismatch);
  });
}

// What rounds at random does so alike on all replicas.
TEST(Replicas, NoOptimizerMakesThemDiffer) {
  const Case cases[] = {
      {.name = "hsdp", .ranks = 4, .strategy = Strategy::full_shard, .replicas = 2, .compute = DType::bf16},
      {.name = "no_shard", .ranks = 2, .compute = DType::bf16},
      {.name = "no_shard", .ranks = 4, .tp = 2}};
  for (const Case& c : cases)
    for (const char* kind : {"adamw", "adamw8bit", "adafactor", "lion", "muon", "sgd"}) {
      if (c.tp > 1 && std::string(kind) == "adamw8bit") continue;  // the model is too small to split
      SCOPED_TRACE(text(kind, ", ", c.name, " on ", c.ranks, " ranks"));
      test::run_ranks(c.ranks, [&](Gang& root) {
        OptimizerOptions options;
        if (std::string(kind) == "adamw") options.hyperparameters = {{"moment_dtype", DType::bf16}};
        options.ema_decay = 0.5;
        const test::Rig rig = rig_of(root, c, kind, options);
        StepOptions step;
        step.max_grad_norm = 0.1;
        step.microbatches = 2;
        for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(step_of(rig, i, step).step, i + 1);
        swap_ema(*rig.model, *rig.optimizer, rig.stream());
        swap_ema(*rig.model, *rig.optimizer, rig.stream());
        EXPECT_EQ(step_of(rig, 3, step).step, 4);
        rig.model->inspect().check_replicas(rig.stream());
      });
    }
}

}  // namespace
}  // namespace gangway
