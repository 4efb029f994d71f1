// Activation offload: what blocks save waits on the host until their backward. The numbers are the same bits
// as without it, and the tests count what is stored where and what moves. On a CPU offload changes nothing,
// which is tested as well.
#include "parallel/activation_offload.h"

#include <chrono>
#include <thread>

#include "support/deferred/deferred.h"
#include "support/test_device.h"
#include "train/manual.h"
#include "train/pipeline.h"
#include "train/rig.h"

#if defined(__SANITIZE_THREAD__)
#define GANGWAY_TEST_THREADS_WATCHED
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GANGWAY_TEST_THREADS_WATCHED
#endif
#endif

namespace gangway {
namespace {

constexpr int64_t kRows = 8, kLength = 8, kLayers = 5;

DecoderOptions config() {
  DecoderOptions c = test::small_llama();
  c.layers = kLayers;
  c.vocab = 20;
  return c;
}

struct Case {
  MeshOptions mesh;
  Strategy strategy = Strategy::full_shard;
  RecomputeOptions recompute = {};
  int microbatches = 1;
  DType param = DType{};  // compute dtype; none: that of the masters
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
    options.tensor.family.sequence_parallel = true;
    options.activation_offload = offload;
    return options;
  }
};

constexpr RecomputeOptions kFull{RecomputeKind::full}, kEvery{RecomputeKind::every, 2},
    kRatio{RecomputeKind::ratio, 2, 0.6}, kSelective{RecomputeKind::selective};
MeshOptions sharded(int ranks) { return {.dp_shard = ranks}; }

// Every combination that takes another path. The software GPU gets few of them, because it is slow.
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
      {.mesh = {.pp = 2, .dp_shard = 1}, .microbatches = 4},
      {.mesh = {.pp = 2, .dp_shard = 1}, .recompute = kEvery, .microbatches = 4, .schedule = "zb-h1"},
      {.mesh = {.pp = 2, .dp_shard = 1}, .microbatches = 4, .schedule = "zbv"},
      {.mesh = {.pp = 2, .dp_shard = 2}, .microbatches = 4, .schedule = "zb-h2"},
  };
}

struct Trained {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> numbers;  // loss and norm of each step, then every value
};

Trained make(const GangPtr& root, const Case& c, bool offload, const DecoderOptions& llama = config()) {
  Trained t;
  t.model = test::make_model(make_decoder(llama), create_gangs(root, c.mesh), c.options(offload));
  OptimizerOptions adamw;
  adamw.lr = 0.01;
  t.optimizer = make_optimizer("adamw", t.model->inspect().parameters(), adamw, t.model->ops());
  return t;
}

Batch batch_without_values(Model& model) {
  const Tensor ids = Tensor::allocate(model.device().allocator(), DType::i64, Shape{kRows, kLength});
  Batch batch;
  batch.inputs = batch.targets = {ids};
  batch.shift_labels = true;
  return batch;
}

StepResult step(Trained& t, const Case& c, int start) {
  int index = 0, count = 1;
  t.model->gangs().data_shard(&index, &count);
  const Batch batch = t.model->device().kind() == DeviceKind::meta
                          ? batch_without_values(*t.model)
                          : test::pattern_batch(*t.model, kRows, kLength, start + index);
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
      EXPECT_GT(offload->bytes_out(), 0u) << c.describe();
      const bool moves_back = c.mesh.pp == 1;  // a stage may have only two blocks, which stay on the device
      EXPECT_GT(offload->bytes_back() + (moves_back ? 0 : 1), 0u) << c.describe();
      EXPECT_EQ(offload->live_host_bytes(), 0u) << c.describe();
    });
}

// For one block and T tokens in f32, as in nn/block.cpp: the bytes of all that it saves, its output included,
// and the bytes of the output alone.
struct Saved {
  uint64_t block, row;
};
Saved saved_by_block(const DecoderOptions& c, uint64_t tokens) {
  const auto tensor = [&](int64_t width) {
    return (tokens * static_cast<uint64_t>(width) * 4 + 63) / 64 * 64;
  };
  const int64_t head = c.dim / c.heads;
  return {2 * tensor(c.dim) + 2 * tensor(c.heads * head) + 2 * tensor(c.kv_heads * head) + 2 * tensor(c.ffn) +
              2 * tensor(1) + tensor(c.heads),
          tensor(c.dim)};
}

// The device holds what two blocks save, their outputs, and the output that the head saves. The saved values
// of all blocks but the last go to the host, and those of all but the last two come back.
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
    EXPECT_EQ(use.activations,
              before.activations - kLayers * saved.block + 2 * (saved.block + saved.row) + saved.row);
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

// A recomputed block saves only its input.
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
      meta.device = test::test_meta();
      Trained planned = make(Gang::create_fake(gang.rank(), c.ranks(), meta, false, false), c, true);
      for (Trained* trained : {&t, &planned})
        for (int i = 0; i < 2; ++i) step(*trained, c, i);
      const MemoryUse use = t.model->inspect().memory(), plan = planned.model->inspect().memory();
      EXPECT_EQ(use.activations, plan.activations) << c.describe();
      EXPECT_EQ(use.host, plan.host) << c.describe();
      EXPECT_EQ(t.model->activation_offload()->bytes_out(), planned.model->activation_offload()->bytes_out());
      EXPECT_EQ(t.model->activation_offload()->bytes_back(),
                planned.model->activation_offload()->bytes_back());
    });
  }
}

// Runs three forwards in frames of the caller and their backwards in the given order, and returns the
// gradients.
std::vector<double> manual_gradients(Gang& gang, bool offload, const std::vector<size_t>& order) {
  const auto model = std::shared_ptr<Model>(test::make_model(make_decoder(config()), test::make_gangs(gang),
                                                             Case{.mesh = sharded(1)}.options(offload)));
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
  const ActivationOffload* const own = model->activation_offload();
  EXPECT_EQ(own == nullptr ? 0u : own->live_host_bytes(), 0u);
  return all;
}

TEST(ActivationOffload, FramesOfACallerAreRunBackwardInAnyOrder) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0}, {1, 0}})
    test::run_ranks(1, [&](Gang& gang) {
      EXPECT_EQ(manual_gradients(gang, true, order), manual_gradients(gang, false, order));
    });
}

// In the first step, while its slots grow, a block's pieces lie in several chunks. Recomputed blocks have
// small pieces.
TEST(ActivationOffload, BlocksLargerThanAChunkTrainToTheSameBits) {
  for (const RecomputeOptions& recompute : {RecomputeOptions{}, kEvery})
    test::run_ranks(1, [&](Gang& gang) {
      DecoderOptions wide = config();
      wide.layers = 4;
      wide.ffn = 4096;
      const Case c{.mesh = sharded(1), .recompute = recompute};
      std::vector<double> losses[2];
      for (const bool offload : {false, true}) {
        Trained t = make(gang.shared_from_this(), c, offload, wide);
        for (int i = 0; i < 3; ++i) losses[offload].push_back(step(t, c, i).loss);
        const ActivationOffload* const own = t.model->activation_offload();
        EXPECT_GT(own == nullptr ? size_t{2} << 20 : own->device_bytes(), size_t{1} << 20)
            << "more than a chunk";
      }
      EXPECT_EQ(losses[1], losses[0]) << "recompute " << static_cast<int>(recompute.kind);
    });
}

// --- events, on the deferred device

// Puts a forward and a backward on the stream before the stream's first task has run, and returns the
// gradients.
std::vector<double> held_up(Gang& gang, bool offload) {
  const auto model = test::make_model(make_decoder(config()), test::make_gangs(gang),
                                      Case{.mesh = sharded(1)}.options(offload));
  const Batch batch = test::pattern_batch(*model, 2, kLength, 0);
  const Tensor inputs[] = {batch.inputs[0], batch.targets[0]};
  Stream& stream = model->device().stream();
  Context ctx = model->run().context(stream);
  ctx.training = true;
  const int64_t before = deferred::synchronizations(gang.device());
  deferred::enqueue(stream,
                    [](deferred::Worker&) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  Frame& frame = model->frame(0);
  model->run().forward(ctx, inputs, &frame);
  model->run().backward(ctx, {}, frame);
  EXPECT_EQ(deferred::synchronizations(gang.device()) - before, 0) << "the host waits for nothing";
  model->run().finish_gradients(stream);
  std::vector<double> all;
  for (const NamedParameter& named : model->inspect().parameters())
    for (const double value : test::gathered_gradient(*model, *named.parameter)) all.push_back(value);
  return all;
}

TEST(ActivationOffload, CopiesAreOrderedAfterTheirSourcesAndTheHostNeverWaits) {
  if (test::test_device() != "deferred") return;
  test::run_ranks(1, [](Gang& gang) { EXPECT_EQ(held_up(gang, true), held_up(gang, false)); });
}

struct Waits {
  int64_t first, end;
};

// Trains on one rank, with copies that run `slow_us` later than the computations, and with wait number `wait`
// of a stream left out (-1: none). `second` gets the numbers of the waits in the second step.
std::vector<double> trained_without(int64_t wait, int slow_us, Waits* second = nullptr) {
  GangOptions options = test::thread_rank_options();
  options.device = "deferred:1";
  std::vector<double> numbers;
  test::run_ranks(
      1,
      [&](Gang& gang) {
        deferred::set_slow_collectives(gang.device(), slow_us);
        deferred::set_ignored_wait(gang.device(), wait);
        const Case c{.mesh = sharded(1)};
        Trained t = make(gang.shared_from_this(), c, true);
        step(t, c, 0);
        if (second != nullptr) second->first = deferred::waits(gang.device());
        step(t, c, 1);
        if (second != nullptr) second->end = deferred::waits(gang.device());
        for (const NamedParameter& named : t.model->inspect().parameters())
          for (const double value : test::gathered(*t.model, *named.parameter)) numbers.push_back(value);
      },
      options);
  return numbers;
}

TEST(ActivationOffload, LeavingOutAnEventChangesTheResult) {
  if (test::test_device() != "deferred") return;
  Waits second{};
  const std::vector<double> want = trained_without(-1, 0, &second);
  EXPECT_GE(second.end - second.first, 3 * kLayers);
#ifdef GANGWAY_TEST_THREADS_WATCHED
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    for (int64_t wait = second.first; wait < second.end; ++wait) trained_without(wait, 0);
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race");
#else
  for (const int slow_us : {0, 1000}) {
    int differ = 0;
    for (int64_t wait = second.first; wait < second.end; ++wait)
      differ += trained_without(wait, slow_us) == want ? 0 : 1;
    EXPECT_GT(differ, 0) << "copies are late by " << slow_us << " us";
  }
#endif
}

// --- failures

// A wrapper that fails once, before its block runs.
class ThrowingOnce final : public Module {
 public:
  static void arm(Model& model, size_t block) {
    Module& chain = unwrapped(model.root());
    const ModulePtr at = chain.children()[1 + block].module;  // child 0 is the embedding
    chain.set_child(1 + block, std::make_shared<ThrowingOnce>(at));
  }
  explicit ThrowingOnce(ModulePtr inner) { add_child("", std::move(inner)); }
  const char* kind() const override { return "ThrowingOnce"; }
  bool is_wrapper() const override { return true; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    if (!std::exchange(thrown_, true)) fail(Code::aborted, "forward is given up");
    return child(0).forward(ctx, inputs, frame);
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    return child(0).backward(ctx, dy, frame);
  }

 private:
  bool thrown_ = false;
};

TEST(ActivationOffload, TheStepAfterOneThatFailedInAForwardHasTheSameBits) {
  test::run_ranks(1, [](Gang& gang) {
    const Case c{.mesh = sharded(1)};
    Trained plain = make(gang.shared_from_this(), c, false), t = make(gang.shared_from_this(), c, true);
    for (Trained* trained : {&plain, &t}) trained->numbers.push_back(step(*trained, c, 0).loss);
    ThrowingOnce::arm(*t.model, kLayers - 1);
    const Error error = test::error_of([&] { step(t, c, 1); });
    EXPECT_EQ(error.code(), Code::aborted) << error.message();
    for (Trained* trained : {&plain, &t}) trained->numbers.push_back(step(*trained, c, 1).loss);
    EXPECT_EQ(t.numbers, plain.numbers);
    const ActivationOffload* const own = t.model->activation_offload();
    EXPECT_EQ(own == nullptr ? 0u : own->live_host_bytes(), 0u);
  });
}

// A parent that reads the output of a child after three more children have run.
class Skip final : public Module {
 public:
  Skip() {
    for (int i = 0; i < 4; ++i) add_child(text("c", i), make_linear(6, 6, true, 0.5));
  }
  const char* kind() const override { return "Skip"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    Values made{inputs[0]};
    for (size_t i = 0; i < 4; ++i) made.push_back(child(i).forward_one(ctx, made.back(), frame));
    const Tensor sum = make_output(ctx, frame, made[4].dtype(), made[4].shape());
    ctx.ops.cast(made[4], sum, ctx.stream);
    ctx.ops.add(made[1], 1, sum, ctx.stream);
    return {sum};
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    Tensor dx = dy[0];
    for (size_t i = 4; i-- > 1;) dx = child(i).backward_one(ctx, dx, frame);
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
      const auto model =
          std::shared_ptr<Model>(test::make_model(std::make_shared<Skip>(), test::make_gangs(gang), options));
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
