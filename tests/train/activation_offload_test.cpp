// What blocks save lies on the host until their backward: the same bits as on the device, what lies where and what moves.
// On a CPU nothing changes, which is tested, too.
#include "parallel/activation_offload.h"

#include "support/deferred/deferred.h"
#include "support/test_device.h"
#include "train/manual.h"
#include "train/pipeline.h"
#include "train/rig.h"

namespace gangway {
namespace {

constexpr int64_t kRows = 8, kLength = 8, kLayers = 5;

LlamaConfig config() {
  LlamaConfig c = test::small_llama();
  c.layers = kLayers;
  return c;
}

struct Case {
  MeshOptions mesh;
  Strategy strategy = Strategy::full_shard;
  RecomputeOptions recompute;
  int microbatches = 1;
  DType param = DType{};  // compute dtype; none: the master's
  bool cpu_offload = false;
  std::string schedule = "1f1b";

  int ranks() const { return mesh.pp * mesh.dp_replicate * mesh.dp_shard * mesh.cp * mesh.tp; }
  std::string describe() const {
    return text("pp ", mesh.pp, " (", schedule, "), dp_replicate ", mesh.dp_replicate, ", dp_shard ",
                mesh.dp_shard, ", cp ", mesh.cp, ", tp ", mesh.tp, ", strategy ", static_cast<int>(strategy),
                ", recompute ", static_cast<int>(recompute.kind), ", ", microbatches,
                " microbatches, param_dtype ", param == DType{} ? "none" : name(param),
                cpu_offload ? ", cpu_offload" : "");
  }
  ParallelOptions options(bool offload) const {
    ParallelOptions options = test::parallel(strategy, DType::f32);
    options.shard.param_dtype = param;
    options.shard.cpu_offload = cpu_offload;
    options.recompute = recompute;
    options.pipeline.schedule = schedule;
    options.tensor.llama.sequence_parallel = true;
    options.activation_offload = offload;
    return options;
  }
};

constexpr RecomputeOptions kFull{RecomputeKind::full}, kEvery{RecomputeKind::every, 2},
    kRatio{RecomputeKind::ratio, 2, 0.6}, kSelective{RecomputeKind::selective};
MeshOptions sharded(int ranks) { return {.dp_shard = ranks}; }

// Each new shape of a path; few of them on the software GPU, which is slow.
std::vector<Case> cases() {
  if (test::test_device() == "cuda") return {{.mesh = sharded(1), .microbatches = 2, .param = DType::bf16}};
  return {
      {.mesh = sharded(1)},
      {.mesh = sharded(1), .recompute = kFull, .microbatches = 3, .param = DType::bf16},
      {.mesh = sharded(2), .recompute = kEvery, .microbatches = 2},
      {.mesh = sharded(2), .strategy = Strategy::shard_grad_op, .recompute = kRatio},
      {.mesh = sharded(2), .strategy = Strategy::no_shard, .recompute = kSelective},
      {.mesh = {.dp_replicate = 2, .dp_shard = 2}, .microbatches = 2, .cpu_offload = true},
      {.mesh = sharded(4), .param = DType::f16},
      {.mesh = {.dp_shard = 1, .tp = 2}},
      {.mesh = {.dp_shard = 2, .tp = 2}, .recompute = kFull},
      {.mesh = {.dp_shard = 1, .cp = 2}, .microbatches = 2},
      {.mesh = {.pp = 2}, .microbatches = 4},
      {.mesh = {.pp = 2}, .recompute = kEvery, .microbatches = 4, .schedule = "zb-h1"},
      {.mesh = {.pp = 2}, .microbatches = 4, .schedule = "zbv"},
      {.mesh = {.pp = 2, .dp_shard = 2}, .microbatches = 4, .schedule = "zb-h2"},
  };
}

struct Trained {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> numbers;  // loss and norm of each step, then every value
};

Trained make(const GangPtr& root, const Case& c, bool offload, const LlamaConfig& llama = config()) {
  Trained t;
  t.model = test::make_model(make_llama(llama), create_gangs(root, c.mesh), c.options(offload));
  t.optimizer = make_adamw(t.model->inspect().parameters(), {.lr = 0.01}, t.model->ops());
  return t;
}

StepResult step(Trained& t, const Case& c, int start) {
  int index = 0, count = 1;
  t.model->gangs().data_shard(&index, &count);
  const Batch batch = test::pattern_batch(*t.model, kRows, kLength, start + index);
  StepOptions options;
  options.max_grad_norm = 1;
  options.microbatches = c.microbatches;
  return train_step(*t.model, t.optimizer.get(), batch, options, t.model->device().stream());
}

Trained train(const GangPtr& root, const Case& c, bool offload, int steps = 2) {
  Trained t = make(root, c, offload);
  for (int i = 0; i < steps; ++i) {
    const StepResult result = step(t, c, 10 * i);
    t.numbers.insert(t.numbers.end(), {result.loss, result.grad_norm});
  }
  for (const NamedParameter& named : t.model->inspect().parameters())
    for (const double value : test::gathered(*t.model, *named.parameter)) t.numbers.push_back(value);
  return t;
}

TEST(ActivationOffload, TrainsToTheSameBits) {
  for (const Case& c : cases())
    test::run_ranks(c.ranks(), [&](Gang& gang) {
      const GangPtr root = gang.shared_from_this();
      const std::vector<double> plain = train(root, c, false).numbers;
      EXPECT_GT(plain.front(), 0);
      const Trained offloaded = train(root, c, true);
      EXPECT_EQ(offloaded.numbers, plain) << c.describe();
      const ActivationOffload* const offload = offloaded.model->activation_offload();
      EXPECT_EQ(offload == nullptr, test::on_cpu());
      if (offload == nullptr) return;
      EXPECT_GT(offload->bytes_back(), 0u) << c.describe();
      EXPECT_EQ(offload->live_host_bytes(), 0u) << c.describe();
    });
}

// Of one block and T tokens in f32, as in nn/block.cpp: what it saves, its output among it, and the output alone.
struct Saved {
  uint64_t block, row;
};
Saved saved_by_block(const LlamaConfig& c, uint64_t tokens) {
  const auto tensor = [&](int64_t width) { return (tokens * static_cast<uint64_t>(width) * 4 + 63) / 64 * 64; };
  const int64_t head = c.dim / c.heads;
  return {2 * tensor(c.dim) + 2 * tensor(c.heads * head) + 2 * tensor(c.kv_heads * head) + 2 * tensor(c.ffn) +
              2 * tensor(1) + tensor(c.heads),
          tensor(c.dim)};
}

// Two blocks with their outputs lie on the device, and the output that the head saves. All but the last go to the host,
// and all but the last two come back.
TEST(ActivationOffload, TheDeviceKeepsWhatTwoBlocksSaveAndEachByteMovesOnce) {
  if (test::on_cpu()) return;
  test::run_ranks(1, [&](Gang& gang) {
    const Case c{.mesh = sharded(1), .microbatches = 2};
    Trained plain = make(gang.shared_from_this(), c, false), t = make(gang.shared_from_this(), c, true);
    for (int i = 0; i < 2; ++i) {
      step(plain, c, i);
      step(t, c, i);
    }
    const Saved saved = saved_by_block(config(), kRows * kLength / 2);
    const MemoryUse before = plain.model->inspect().memory(), use = t.model->inspect().memory();
    EXPECT_EQ(use.activations, before.activations - kLayers * saved.block + 2 * (saved.block + saved.row) + saved.row);
    EXPECT_EQ(use.gradients, before.gradients);
    EXPECT_EQ(before.host, 0u);
    EXPECT_EQ(use.host, (kLayers - 1) * saved.block);
    const ActivationOffload& offload = *t.model->activation_offload();
    constexpr uint64_t kForwards = 4;
    EXPECT_EQ(offload.bytes_out(), kForwards * (kLayers - 1) * saved.block);
    EXPECT_EQ(offload.bytes_back(), kForwards * (kLayers - 2) * saved.block);
    EXPECT_EQ(offload.live_host_bytes(), 0u);
  });
}

// A recomputed block keeps its input alone.
TEST(ActivationOffload, RecomputedBlocksSendTheirInputsOnly) {
  if (test::on_cpu()) return;
  test::run_ranks(1, [&](Gang& gang) {
    const Case c{.mesh = sharded(1), .recompute = kFull};
    Trained t = make(gang.shared_from_this(), c, true);
    step(t, c, 0);
    const Saved saved = saved_by_block(config(), kRows * kLength);
    EXPECT_EQ(t.model->inspect().memory().host, (kLayers - 1) * saved.row);
    EXPECT_EQ(t.model->activation_offload()->device_bytes(), 2 * 2 * saved.row);
    EXPECT_EQ(t.model->activation_offload()->bytes_out(), (kLayers - 1) * saved.row);
  });
}

TEST(ActivationOffload, APlanOnMetaCountsTheBytesOfARun) {
  if (test::on_cpu()) return;
  for (const Case& c : cases()) {
    if (c.mesh.pp > 1 && c.schedule != "1f1b") continue;
    test::run_ranks(c.ranks(), [&](Gang& gang) {
      Trained t = make(gang.shared_from_this(), c, true);
      GangOptions meta;
      meta.device = "meta";
      Trained planned = make(Gang::create_fake(gang.rank(), c.ranks(), meta, false, false), c, true);
      for (Trained* trained : {&t, &planned})
        for (int i = 0; i < 2; ++i) step(*trained, c, i);
      const MemoryUse use = t.model->inspect().memory(), plan = planned.model->inspect().memory();
      EXPECT_EQ(use.activations, plan.activations) << c.describe();
      EXPECT_EQ(use.host, plan.host) << c.describe();
      EXPECT_EQ(t.model->activation_offload()->bytes_out(), planned.model->activation_offload()->bytes_out());
      EXPECT_EQ(t.model->activation_offload()->bytes_back(), planned.model->activation_offload()->bytes_back());
    });
  }
}

// Gradients after forwards in three frames of a caller, whose backwards come in the given order.
std::vector<double> by_hand(Gang& gang, bool offload, const std::vector<size_t>& order) {
  const auto model = std::shared_ptr<Model>(
      test::make_model(make_llama(config()), test::make_gangs(gang), Case{.mesh = sharded(1)}.options(offload)));
  Stream& stream = model->device().stream();
  std::vector<std::unique_ptr<ManualFrame>> frames;
  for (int i = 0; i < 3; ++i) {
    const Batch batch = test::pattern_batch(*model, 2, kLength, i);
    const Tensor inputs[] = {batch.inputs[0], batch.targets[0]};
    frames.push_back(std::make_unique<ManualFrame>(model, ManualOptions{}));
    manual_forward(*model, inputs, frames.back().get(), stream);
  }
  for (const size_t frame : order) {
    model->run().set_is_last_backward(frame == order.back());
    manual_backward(*frames[frame], {}, stream);
  }
  std::vector<double> all;
  for (const NamedParameter& named : model->inspect().parameters())
    for (const double value : test::gathered_gradient(*model, *named.parameter)) all.push_back(value);
  frames.clear();
  if (offload && !test::on_cpu()) EXPECT_EQ(model->activation_offload()->live_host_bytes(), 0u);
  return all;
}

TEST(ActivationOffload, FramesOfACallerAreRunBackwardInAnyOrder) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0}, {1, 0}})
    test::run_ranks(1, [&](Gang& gang) { EXPECT_EQ(by_hand(gang, true, order), by_hand(gang, false, order)); });
}

// A parent that reads the output of a child after two further children have run.
class Skip final : public Module {
 public:
  Skip() {
    for (int i = 0; i < 4; ++i) add_child(text("c", i), make_linear(6, 6, true, 0.5));
  }
  const char* kind() const override { return "Skip"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    Values made{inputs[0]};
    for (size_t i = 0; i < 4; ++i) made.push_back(child(i).forward1(ctx, made.back(), frame));
    const Tensor sum = make_output(ctx, frame, made[4].dtype(), made[4].shape());
    ctx.ops.cast(made[4], sum, ctx.stream);
    ctx.ops.add(made[1], 1, sum, ctx.stream);
    return {sum};
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    Tensor dx = dy[0];
    for (size_t i = 4; i-- > 1;) dx = child(i).backward1(ctx, dx, frame);
    ctx.ops.add(dy[0], 1, dx, ctx.stream);
    return child(0).backward(ctx, {&dx, 1}, frame);
  }
};

TEST(ActivationOffload, OutputsStayWhereAnotherModuleThanTheNextReadsThem) {
  test::run_ranks(1, [](Gang& gang) {
    std::vector<double> numbers[2];
    for (const bool offload : {false, true}) {
      ParallelOptions options = test::parallel(Strategy::full_shard, DType::f32);
      options.activation_offload = offload;
      const auto model = std::shared_ptr<Model>(
          test::make_model(std::make_shared<Skip>(), test::make_gangs(gang), options));
      const std::vector<float> values = {1, 2, 3, 4, 5, 6, -1, 0, 1, 2, 0.5, 4};
      const Tensor x = test::tensor_of(*model, DType::f32, Shape{2, 6}, values.data());
      ManualFrame frame(model, {});
      const Values y = manual_forward(*model, {&x, 1}, &frame, model->device().stream());
      const Values dx = manual_backward(frame, y, model->device().stream());
      for (const Tensor& tensor : {y[0], dx[0]}) {
        const test::HostMemory host(tensor);
        for (int64_t i = 0; i < tensor.count(); ++i) numbers[offload].push_back(host.data<float>()[i]);
      }
    }
    EXPECT_EQ(numbers[1], numbers[0]);
  });
}

}  // namespace
}  // namespace gangway
