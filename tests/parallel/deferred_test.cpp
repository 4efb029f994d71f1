// Training on the deferred device gives the results of a CPU for every order in which the device's streams
// run. It needs every one of its events, and its host hardly ever waits.
#include "support/deferred/deferred.h"

#include <chrono>
#include <thread>

#include "base/sanitized.h"
#include "nn/custom.h"
#include "parallel/reference_run.h"
#include "parallel/shard_group.h"

#if defined(__SANITIZE_THREAD__)
#define GANGWAY_TEST_THREADS_WATCHED
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GANGWAY_TEST_THREADS_WATCHED
#endif
#endif

namespace gangway::test {
namespace {

#ifdef GANGWAY_TEST_SANITIZED
constexpr int kSeeds = 12;
#else
constexpr int kSeeds = 100;
#endif

ModulePtr chain() {
  return make_sequential({make_linear(3, 5, true, 0.5), make_rmsnorm(5, 1e-5), make_linear(5, 7, false, 0.5),
                          make_linear(7, 2, true, 0.5)});
}
const ReferenceRun kChain{chain, Shape{4, 3}};

struct Case {
  int ranks = 2;
  int replicas = 1;
  Strategy strategy = Strategy::full_shard;
  DType param = DType{};
};

// The number of times that the host has waited for the device. It is always 0 for a CPU.
int64_t deferred_waits_of_host(const Device& device) {
  return device.kind() == DeviceKind::extension ? deferred::synchronizations(device) : 0;
}

GangOptions on_device(const std::string& device) {
  GangOptions options = thread_rank_options();
  options.device = device;
  return options;
}

std::unique_ptr<Model> model_on(Gang& root, const Case& c) {
  auto model = std::make_unique<Model>(chain(), mesh_of(root, c.replicas));
  ParallelOptions options;
  options.shard.strategy = c.strategy;
  options.shard.param_dtype = c.param;
  options.master_dtype = DType::f32;
  options.seed = 5;
  model->build().parallelize(options);
  return model;
}

ReferenceRun f32_reference() {
  ReferenceRun reference = kChain;
  reference.dtype = DType::f32;
  return reference;
}

// Runs two microbatches, computes the norm, and updates with clipping.
void step(Model& model, Optimizer& optimizer, const ReferenceRun& reference, int number) {
  Stream& stream = model.device().stream();
  for (int m = 0; m < 2; ++m) {
    model.run().set_is_last_backward(m == 1);
    reference.run(model, 2 * number + m);
  }
  const double norm = model.run().gradient_norm(2, stream);
  model.run().begin_update(stream);
  optimizer.step(1, std::min(1.0, 0.5 / norm), stream);
  model.run().end_update(stream, /*copies_written=*/true);
}

using Hook = void (*)(Device& device, int rank);

// The parameters after three steps, gathered on rank 0.
std::map<std::string, Vector> trained(const std::string& device, const Case& c, Hook hook = nullptr) {
  std::map<std::string, Vector> out;
  run_ranks(
      c.ranks,
      [&](Gang& root) {
        if (hook != nullptr) hook(root.device(), root.rank());
        const auto model = model_on(root, c);
        const ReferenceRun reference = f32_reference();
        const auto optimizer =
            make_optimizer("adamw", model->inspect().parameters(), reference.adamw(), model->ops());
        for (int number = 0; number < 3; ++number) step(*model, *optimizer, reference, number);
        for (const NamedParameter& p : model->inspect().parameters()) {
          const Vector whole = get(model->inspect().gather(*p.parameter, model->device().stream()));
          if (root.rank() == 0) out[p.name] = whole;
        }
      },
      on_device(device));
  return out;
}

TEST(DeferredTraining, GivesTheCpusBitsForEverySeed) {
  constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};
  std::map<int, std::map<std::string, Vector>> wanted;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Case c{.ranks = 1 + seed % 4, .strategy = kStrategies[seed / 4 % 3]};
    c.replicas = c.ranks == 4 && seed % 8 == 3 ? 2 : 1;
    c.param = seed / 12 % 2 == 0 ? DType{} : DType::bf16;
    auto& want = wanted[seed % 24];
    if (want.empty()) want = trained("cpu", c);
    EXPECT_EQ(trained("deferred:" + std::to_string(seed), c), want)
        << "seed " << seed << ", " << c.ranks << " ranks";
  }
}

int ignored = -1;

// Trains without event number `wait` on rank 0. The collectives are slow enough for that event to matter.
std::map<std::string, Vector> trained_without(int wait) {
  ignored = wait;
  return trained("deferred:1", {}, [](Device& device, int rank) {
    deferred::set_slow_collectives(device, 1000);
    if (rank == 0) deferred::set_ignored_wait(device, ignored);
  });
}

TEST(DeferredTraining, LeavingOutAnEventChangesTheResult) {
  constexpr int kLooked = 8;  // the waits of the first step
#ifdef GANGWAY_TEST_THREADS_WATCHED
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    for (int wait = 0; wait < kLooked; ++wait) trained_without(wait);
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race");
#else
  const auto want = trained_without(-1);
  int differ = 0;
  for (int wait = 0; wait < kLooked; ++wait) differ += trained_without(wait) == want ? 0 : 1;
  EXPECT_GT(differ, 0);
#endif
}

// --- failures

// Rank 1 aborts without ever having used the channel on which rank 0 waits for it.
TEST(DeferredTraining, AnAbortReachesAPeerOnAChannelThatOnlyThePeerHasOpened) {
  run_ranks(
      2,
      [](Gang& root) {
        if (root.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          return root.abort(Error(Code::aborted, "given up"));
        }
        const Tensor t = make(root.device(), DType::f32, Shape{3}, {1, 2, 3});
        Collective sum;
        sum.op = CollectiveOp::all_reduce;
        sum.in = sum.out = t.raw();
        sum.count = 3;
        sum.dtype = DType::f32;
        sum.reduce = Reduce::sum;
        const auto start = std::chrono::steady_clock::now();
        const WorkPtr work = root.run(Channel::fsdp_reduce, sum);
        EXPECT_THROW(work->wait(Deadline::never()), Error);
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30))
            << "the gang's own deadline is a minute";
      },
      on_device("deferred:2"));
}

// --- streams of the caller

// Delays a deferred stream so much that any work which is not ordered after it comes before it.
void hold(Stream& stream) {
  if (stream.device().kind() != DeviceKind::extension) return;
  deferred::enqueue(stream,
                    [](deferred::Worker&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
}

// Three streams that are used in turn. Each is delayed before its call.
class Turns {
 public:
  explicit Turns(Device& device) {
    for (auto& stream : streams_) stream = device.make_stream(StreamPriority::normal);
  }
  Stream& next() {
    Stream& stream = *streams_[turn_++ % streams_.size()];
    hold(stream);
    return stream;
  }

 private:
  std::array<std::unique_ptr<Stream>, 3> streams_;
  size_t turn_ = 0;
};

// The inputs and gradients of this rank, copied to the device before anything runs.
struct Batches {
  Batches(const ReferenceRun& reference, Gang& root, int count) {
    for (int m = 0; m < count; ++m) {
      inputs.push_back(reference.input_of(root.device(), root.rank(), m));
      gradients.push_back(reference.make_tensor(root.device(), Shape{4, 2}, 2000 + 10 * m + root.rank()));
    }
  }
  Tensor gradient(size_t m, Frame& frame, Context& ctx) const {
    const Tensor dy = frame.allocate_gradient(DType::f32, gradients[m].shape());
    ctx.ops.cast(gradients[m], dy, ctx.stream);
    return dy;
  }
  std::vector<Tensor> inputs, gradients;
};

std::map<std::string, Vector> trained_on_streams_in_turn(const std::string& device, const Case& c) {
  std::map<std::string, Vector> out;
  run_ranks(
      c.ranks,
      [&](Gang& root) {
        Turns turns(root.device());
        const auto model = model_on(root, c);
        const ReferenceRun reference = f32_reference();
        const auto optimizer =
            make_optimizer("adamw", model->inspect().parameters(), reference.adamw(), model->ops());
        const Batches batches(reference, root, 2);
        for (size_t number = 0; number < 2; ++number) {
          Frame& frame = model->frame(0);
          Context forward = model->run().context(turns.next());
          model->run().forward(forward, {&batches.inputs[number], 1}, &frame);
          Context backward = model->run().context(turns.next());
          const Tensor dy = batches.gradient(number, frame, backward);
          model->run().backward(backward, {&dy, 1}, frame);
          frame.reset();
          model->run().scale_gradients(0.5, turns.next());
          Stream& last = turns.next();
          model->run().begin_update(last);
          optimizer->step(1, 1, last);
          model->run().end_update(last, /*copies_written=*/true);
        }
        for (const NamedParameter& p : model->inspect().parameters()) {
          const Tensor whole = model->inspect().gather(*p.parameter, turns.next());
          model->run().order(root.device().stream());
          const Vector values = get(whole);
          if (root.rank() == 0) out[p.name] = values;
        }
      },
      on_device(device));
  return out;
}

TEST(DeferredTraining, CallsOnOneStreamAfterAnotherAreOrdered) {
  for (const int ranks : {1, 2})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard}) {
      const Case c{.ranks = ranks, .strategy = strategy};
      EXPECT_EQ(trained_on_streams_in_turn("deferred:3", c), trained_on_streams_in_turn("cpu", c)) << ranks;
    }
}

// Updates the values, adds gradients through views, and returns the sums that the rank's own stream sees.
Vector shard_group_on_streams_in_turn(const std::string& device) {
  Vector out;
  run_ranks(
      2,
      [&](Gang& root) {
        Turns turns(root.device());
        const auto group = make_shard_group(
            mesh_of(root), "g", {{.name = "w", .shape = Shape{5, 3}, .init = Init::normal(1)}}, {}, 3);
        const Tensor gradient = make(root.device(), DType::f32, Shape{5, 3}, random_vector(15, 7));
        const Tensor copy = Tensor::allocate(root.device().allocator(), DType::f32, Shape{5, 3});
        Vector seen;
        for (int round = 0; round < 3; ++round) {
          group->unshard({&copy, 1}, turns.next());
          group->add_gradient(0, gradient, turns.next());
          group->reshard(turns.next());
          group->reduce(turns.next());
          for (const double x : get(group->view(0, Part::gradient))) seen.push_back(x);
          for (const double x : get(copy)) seen.push_back(x);
          group->begin_update(turns.next());
          group->end_update(turns.next());
        }
        if (root.rank() == 0) out = seen;
      },
      on_device(device));
  return out;
}

TEST(DeferredTraining, CallsOfAShardGroupOnOneStreamAfterAnotherAreOrdered) {
  EXPECT_EQ(shard_group_on_streams_in_turn("deferred:4"), shard_group_on_streams_in_turn("cpu"));
}

// --- custom modules

// y = s x, computed by the test's own code on the stream that the call gives it.
class ScaledOnStream final : public CustomBehaviour {
 public:
  explicit ScaledOnStream(const Stream* wanted) : wanted_(wanted) {}
  Specs shapes(Custom&, Context&, std::span<const Spec> inputs) override { return {inputs[0]}; }
  void forward(Call& call) override {
    run(call, [x = data(call.inputs[0]), s = data(call.parameters[0]->value), y = data(call.outputs[0])] {
      for (size_t i = 0; i < x.size(); ++i) y[i] = s[i % s.size()] * x[i];
    });
  }
  void backward_input(Call& call) override {
    run(call, [dy = data(call.output_grads[0]), s = data(call.parameters[0]->value),
               dx = data(call.input_grads[0])] {
      for (size_t i = 0; i < dy.size(); ++i) dx[i] = s[i % s.size()] * dy[i];
    });
  }
  bool has_backward_weight() const override { return true; }
  void backward_weight(Call& call) override {
    run(call, [dy = data(call.output_grads[0]), x = data(call.inputs[0]),
               ds = data(call.parameters[0]->grad->tensor)] {
      for (size_t i = 0; i < dy.size(); ++i) ds[i % ds.size()] += dy[i] * x[i];
    });
  }
  void free_state(void*) noexcept override {}
  bool accepts(DType compute) const override { return compute == DType::f32; }

 private:
  static std::span<float> data(const Tensor& t) {
    return {static_cast<float*>(deferred::host_address(t.raw())), static_cast<size_t>(t.count())};
  }
  template <typename Task>
  void run(Call& call, Task task) const {
    const bool device = call.ctx.ops.device().kind() == DeviceKind::extension;
    EXPECT_EQ(&call.ctx.stream, wanted_);
    EXPECT_EQ(call.inputs[0].on_host(), !device) << "data are the device's";
    if (device)
      deferred::enqueue(call.ctx.stream, [task](deferred::Worker&) { task(); });
    else
      task();
  }

  const Stream* const wanted_;
};

std::map<std::string, Vector> trained_with_custom(const std::string& device, int ranks) {
  std::map<std::string, Vector> out;
  run_ranks(
      ranks,
      [&](Gang& root) {
        const auto stream = root.device().make_stream(StreamPriority::normal);
        CustomOptions custom;
        custom.parameters = {{"scale", Shape{5}, Init::normal(1)}};
        Model model(make_sequential({make_linear(3, 5, true, 0.5),
                                     make_custom(custom, std::make_shared<ScaledOnStream>(stream.get())),
                                     make_linear(5, 2, true, 0.5)}),
                    mesh_of(root));
        model.build().parallelize({});
        const ReferenceRun reference = f32_reference();
        const Batches batches(reference, root, 2);
        const int64_t before = deferred_waits_of_host(root.device());
        for (size_t m = 0; m < 2; ++m) {
          hold(*stream);
          Context ctx = model.run().context(*stream);
          Frame& frame = model.frame(0);
          model.run().forward(ctx, {&batches.inputs[m], 1}, &frame);
          const Tensor dy = batches.gradient(m, frame, ctx);
          model.run().backward(ctx, {&dy, 1}, frame);
          frame.reset();
        }
        model.run().finish_gradients(*stream);
        EXPECT_EQ(deferred_waits_of_host(root.device()), before);
        for (const NamedParameter& p : model.inspect().parameters()) {
          const Tensor whole = model.inspect().gather_gradient(*p.parameter, *stream);
          model.run().order(root.device().stream());
          const Vector values = get(whole);
          if (root.rank() == 0) out[p.name] = values;
        }
      },
      on_device(device));
  return out;
}

TEST(DeferredTraining, ACustomModuleGetsAStreamAndDeviceMemoryAndNothingWaits) {
  for (const int ranks : {1, 2}) {
    const auto want = trained_with_custom("cpu", ranks);
    EXPECT_EQ(want.size(), 5u);
    EXPECT_EQ(trained_with_custom("deferred:5", ranks), want) << ranks;
  }
}

TEST(DeferredTraining, AStepWaitsForNothingButTheNorm) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
    for (const int ranks : {1, 2, 4})
      run_ranks(
          ranks,
          [&](Gang& root) {
            const auto model = model_on(root, {.ranks = ranks, .strategy = strategy});
            const ReferenceRun reference = f32_reference();
            const auto optimizer =
                make_optimizer("adamw", model->inspect().parameters(), reference.adamw(), model->ops());
            step(*model, *optimizer, reference, 0);
            const int64_t given = 2 * 4;  // the test itself copies these inputs and gradients to the device
            const int64_t before = deferred::synchronizations(root.device());
            step(*model, *optimizer, reference, 1);
            EXPECT_LE(deferred::synchronizations(root.device()) - before - given, 1) << ranks;
          },
          on_device("deferred:7"));
}

}  // namespace
}  // namespace gangway::test
