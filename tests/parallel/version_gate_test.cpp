// The version gate: an owner updates its rows while a peer is held in the middle of using the old ones.
#include <atomic>
#include <chrono>
#include <thread>

#include "base/interrupt.h"
#include "parallel/collective_call.h"
#include "parallel/reference_run.h"
#include "parallel/shard_group.h"

namespace gangway::test {
namespace {

using namespace std::chrono_literals;

// Holds a reader of a version until all of its peers are about to update it (or to clip before that), and for
// 50 ms more, because no event tells when the peers would write.
class Holds {
 public:
  explicit Holds(int ranks) : peers_(ranks - 1) {}
  void about_to_update(int version) { ++about_to_update_[version]; }
  void hold(int version) {
    const std::atomic<int>& ready = about_to_update_[version];
    const Deadline deadline = Deadline::after_ms(60'000);
    while (ready < peers_ && !deadline.passed()) std::this_thread::sleep_for(200us);
    EXPECT_EQ(ready, peers_) << "peers wait for this rank before they could write version " << version;
    std::this_thread::sleep_for(50ms);
    ++held_;
  }
  int held() const { return held_; }

 private:
  const int peers_;
  std::atomic<int> about_to_update_[8]{};
  std::atomic<int> held_{0};
};

// A module that holds its rank in the middle of a model.
class Held final : public Module {
 public:
  static inline thread_local Holds* in_forward = nullptr;
  static inline thread_local Holds* in_backward = nullptr;
  static inline thread_local int version = 0;
  const char* kind() const override { return "Held"; }
  Values forward(Context&, std::span<const Tensor> inputs, Frame*) override {
    if (in_forward != nullptr) in_forward->hold(version);
    return {inputs[0]};
  }
  Values backward(Context&, std::span<const Tensor> dy, Frame&) override {
    if (in_backward != nullptr) in_backward->hold(version);
    return {dy[0]};
  }
};

// Backward passes `Held` before it reads the weights of child "0".
ModulePtr held() {
  return make_sequential(
      {make_linear(6, 8, true, 0.5), std::make_shared<Held>(), make_linear(8, 6, true, 0.5)});
}

void update(Model& model, double factor) {
  Stream& stream = model.device().stream();
  model.run().begin_update(stream);
  for (const NamedParameter& p : model.inspect().parameters())
    if (p.parameter->shard.count() != 0) model.ops().scale(p.parameter->shard, factor, stream);
  model.run().end_update(stream);
}

struct Use {
  Vector output, input_gradient;
};

Use use(Model& model, bool backward) {
  Context ctx = model.run().context(model.device().stream());
  const Tensor x = make(model.device(), DType::f64, Shape{3, 6}, random_vector(18, 1));
  Use result;
  if (!backward) {
    result.output = get(model.run().forward(ctx, {&x, 1}, nullptr)[0]);
    model.temporaries().reset();
    return result;
  }
  Frame& frame = model.frame(0);
  const Tensor y = model.run().forward(ctx, {&x, 1}, &frame)[0];
  result.output = get(y);
  const Tensor dy = frame.allocate_gradient(DType::f64, y.shape());
  put(dy, random_vector(18, 2));
  result.input_gradient = get(model.run().backward(ctx, {&dy, 1}, frame)[0]);
  frame.reset();
  return result;
}

std::unique_ptr<Model> make_held(Gang& root, Strategy strategy, bool trainable, bool regions) {
  auto model = std::make_unique<Model>(held(), mesh_of(root));
  model->fsdp().use_regions(regions);
  for (const NamedParameter& p : named_parameters(model->root()))
    p.parameter->trainable = trainable && p.name.starts_with("2.");
  ParallelOptions options;
  options.master_dtype = DType::f64;
  options.shard.strategy = strategy;
  model->build().parallelize(options);
  return model;
}

struct Holding {
  int ranks = 3;
  bool backward = true;    // where the slow rank is held; false: in an evaluation
  bool trainable = false;  // whether the last layer is; the first is always frozen
  bool regions = true;     // false: private shards
  bool clip = false, evaluates = false;
};

// Every rank is the slow one in turn. If all layers are frozen, no reduction orders anything, and only the
// gate does.
void expect_old_bits(const Holding& h) {
  std::vector<Use> want;  // by version, on one rank
  run_ranks(1, [&](Gang& root) {
    const auto model = make_held(root, Strategy::full_shard, h.trainable, h.regions);
    for (int version = 0; version <= h.ranks; ++version) {
      want.push_back(use(*model, h.backward));
      update(*model, 2);
    }
  });
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op}) {
    std::atomic<int> was_read{-1};  // the last version that its slow reader has finished with
    Holds holds(h.ranks);
    run_ranks(h.ranks, [&](Gang& root) {
      const auto model = make_held(root, strategy, h.trainable, h.regions);
      for (int version = 0; version <= h.ranks; ++version) {
        const Use& expected = want[static_cast<size_t>(version)];
        const bool slow = version < h.ranks && root.rank() == version;
        Held::version = version;
        Held::in_forward = slow && !h.backward ? &holds : nullptr;
        Held::in_backward = slow && h.backward ? &holds : nullptr;
        const Use got = use(*model, h.backward);
        if (slow) was_read = version;
        EXPECT_EQ(got.output, expected.output) << "version " << version;
        EXPECT_EQ(got.input_gradient, expected.input_gradient) << "version " << version;
        holds.about_to_update(version);
        if (h.clip) model->run().gradient_norm(2, model->device().stream());
        update(*model, 2);
        // With private shards the reader has its own copy, so the update waits only for the gather.
        if (version < h.ranks && h.regions) {
          EXPECT_GE(was_read, version) << "the update waited for the reader";
        }
        if (!h.evaluates || version == h.ranks) continue;
        Held::in_forward = nullptr;
        EXPECT_EQ(use(*model, false).output, want[static_cast<size_t>(version) + 1].output);
      }
    });
    EXPECT_EQ(holds.held(), h.ranks);
  }
}

TEST(VersionGate, PeerHeldInsideBackwardReadsOldBits) { expect_old_bits({}); }
TEST(VersionGate, PeerHeldInsideBackwardReadsOldBitsOfAFrozenParameterGroup) {
  expect_old_bits({.ranks = 2, .trainable = true});
}
TEST(VersionGate, PeerHeldInsideBackwardReadsOldBitsWithClipping) {
  for (const bool trainable : {false, true}) expect_old_bits({.trainable = trainable, .clip = true});
}
TEST(VersionGate, PeerHeldInsideBackwardReadsOldBitsWithEvaluationsBetweenSteps) {
  for (const bool clip : {false, true}) expect_old_bits({.trainable = true, .clip = clip, .evaluates = true});
}
TEST(VersionGate, PeerHeldInsideEvaluationReadsOldBits) { expect_old_bits({.backward = false}); }
TEST(VersionGate, PeerHeldInsideBackwardReadsOldBitsOfPrivateShards) {
  for (const bool trainable : {false, true})
    for (const bool clip : {false, true})
      for (const bool evaluates : {false, true})
        expect_old_bits({.trainable = trainable, .regions = false, .clip = clip, .evaluates = evaluates});
}
// The rows are too many to be staged: rank 1 has started its gather, and reads rank 0's rows only when it
// waits for them.
TEST(VersionGate, PrivateRowsAreReadBeforeTheirOwnerSteps) {
  Holds holds(2);
  run_ranks(2, [&](Gang& root) {
    Model model(make_linear(1024, 1024, false), mesh_of(root));
    model.fsdp().use_regions(false);
    model.build().parallelize({});
    Stream& stream = model.device().stream();
    ParameterGroup& group = *model.fsdp().groups().at(0);
    const Parameter& weight = *group.parameters()[0].parameter;
    Vector want = get(model.inspect().gather(weight, stream));
    if (root.rank() == 1) group.values().prefetch(stream);
    root.barrier();
    if (root.rank() == 1) holds.hold(0);
    group.unshard(stream);
    EXPECT_EQ(get(weight.value), want);
    group.reshard();
    holds.about_to_update(0);
    update(model, 2);
    for (double& x : want) x *= 2;
    group.unshard(stream);
    EXPECT_EQ(get(weight.value), want);
    group.reshard();
    root.barrier();
  });
}

// Rank 1 has started its gather. The rows are too many to be staged, so it reads rank 0's rows only when it
// waits for them.
TEST(VersionGate, AModelThatGoesWaitsForNobodyAndLeavesItsRowsToPeersThatReadThem) {
  std::atomic<bool> gone{false};
  run_ranks(2, [&](Gang& root) {
    auto model = std::make_unique<Model>(make_linear(1024, 1024, false), mesh_of(root));
    model->fsdp().use_regions(false);
    model->build().parallelize({});
    Stream& stream = model->device().stream();
    ParameterGroup& group = *model->fsdp().groups().at(0);
    const Vector want = get(model->inspect().gather(*group.parameters()[0].parameter, stream));
    if (root.rank() == 1) group.values().prefetch(stream);
    root.barrier();
    if (root.rank() == 0) {
      group.unshard(stream);
      model.reset();
      // The allocator would give this tensor the rows if they were free.
      const Tensor other = Tensor::allocate(root.allocator(), DType::f32, Shape{512, 1024});
      std::memset(other.raw(), 0xff, static_cast<size_t>(other.count()) * sizeof(float));
      gone = true;
      root.barrier();
    } else {
      while (!gone) std::this_thread::sleep_for(1ms);
      group.unshard(stream);
      EXPECT_EQ(get(group.parameters()[0].parameter->value), want);
      group.reshard();
      root.barrier();
    }
  });
}

// Both ranks destroy the model after a backward. The reductions in flight still write, into memory that
// nobody else gets.
TEST(VersionGate, AModelThatGoesLeavesItsReductionsTheirMemory) {
  std::atomic<bool> gone{false};
  run_ranks(2, [&](Gang& root) {
    auto model = std::make_unique<Model>(make_linear(1024, 1024, false), mesh_of(root));
    model->build().parallelize({});
    Stream& stream = model->device().stream();
    ParameterGroup& group = *model->fsdp().groups().at(0);
    const auto reduce = [&] {
      group.gradients().acquire(stream);
      Parameter& p = *group.parameters()[0].parameter;
      model->ops().fill(p.grad->target().grad, root.rank() + 1, stream);
      group.gradients().weight_half_done(true, stream);
    };
    if (root.rank() == 0) {
      reduce();
      model.reset();
      const Tensor other = Tensor::allocate(root.allocator(), DType::f32, Shape{1024, 1024});
      std::memset(other.raw(), 0xff, static_cast<size_t>(other.count()) * sizeof(float));
      gone = true;
      root.barrier();
      for (int64_t i = 0; i < other.count(); ++i) ASSERT_TRUE(std::isnan(other.data<float>()[i])) << i;
    } else {
      while (!gone) std::this_thread::sleep_for(1ms);
      reduce();
      group.gradients().finish(stream);
      const Vector sums = get(group.parameters()[0].parameter->shard_grad->tensor);
      EXPECT_EQ(sums, Vector(sums.size(), 3.0));
      root.barrier();
    }
  });
}

TEST(VersionGate, ParameterGroupsStillUnshardedRefuseAnUpdateAndAreNamed) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [](Gang& root) {
      const auto model = make_held(root, Strategy::shard_grad_op, true, true);
      Stream& stream = model->device().stream();
      Context ctx = model->run().context(stream);
      const Tensor x = make(model->device(), DType::f64, Shape{3, 6}, random_vector(18, 1));
      model->run().forward(ctx, {&x, 1}, &model->frame(0));
      expect_refusal(Code::invalid_state, [&] { model->run().begin_update(stream); },
                     {"parameter group (root)", "unsharded"});
      const Tensor dy = model->frame(0).allocate_gradient(DType::f64, Shape{3, 6});
      put(dy, random_vector(18, 2));
      model->run().backward(ctx, {&dy, 1}, model->frame(0));
      update(*model, 2);
      expect_refusal(Code::invalid_state, [&] { model->run().end_update(stream); },
                     {"begin_update comes first"});
      model->run().begin_update(stream);
      expect_refusal(Code::invalid_state, [&] { model->run().begin_update(stream); }, {"end_update"});
      expect_refusal(Code::invalid_state, [&] { model->run().forward(ctx, {&x, 1}, nullptr); }, {"between"});
      model->run().end_update(stream);
    });
}

// A peer that began the update would wait for this rank in the gate.
TEST(VersionGate, OneRanksGroupThatIsStillUnshardedRefusesTheUpdateOnAll) {
  for (const bool has_begun : {false, true})
    run_ranks(3, [&](Gang& root) {
      const auto group = make_shard_group(
          mesh_of(root), "g", {{.name = "w", .shape = Shape{7, 3}, .init = Init::ones()}}, ShardOptions{}, 1);
      Stream& stream = root.device().stream();
      if (has_begun) {
        group->begin_update(stream);
        expect_refusal(Code::invalid_state, [&] { group->begin_update(stream); }, {"has begun already"});
        group->end_update(stream);
      }
      group->unshard({}, stream);  // on all ranks, because unshard may be collective
      if (root.rank() != 1) group->reshard(stream);
      const Error error = expect_refusal(Code::invalid_state, [&] { group->begin_update(stream); },
                                         {"parameter group g", "unsharded"});
      EXPECT_EQ(error.rank, 1);
      group->reshard(stream);
      group->begin_update(stream);
      group->end_update(stream);
      EXPECT_FALSE(root.error().has_value());
    });
}

TEST(VersionGate, AnInterruptInTheVersionGateBreaksTheGang) {
  std::atomic<bool> ready{false}, interrupted{false};
  run_ranks(2, [&](Gang& root) {
    const auto group = make_shard_group(
        mesh_of(root), "g", {{.name = "w", .shape = Shape{7, 3}, .init = Init::ones()}}, ShardOptions{}, 1);
    const auto model = model_from_groups({group});
    if (root.rank() == 0) {
      // otherwise the gang would break while rank 1 makes its group
      while (!ready) std::this_thread::sleep_for(1ms);
      // if values are gathered, the update waits for this gather
      group->unshard_async(model->device().stream());
      set_interrupt([](void*) { return 1; }, nullptr, nullptr);
      const CollectiveCall call(model->gangs(), "update");
      const auto update = [&] { model->run().begin_update(model->device().stream()); };
      expect_refusal(Code::caller, [&] { call.run(update); });
      set_interrupt(nullptr, nullptr, nullptr);
      EXPECT_TRUE(root.error().has_value());
      interrupted = true;
    } else {
      ready = true;
      while (!interrupted) std::this_thread::sleep_for(1ms);
      expect_refusal(Code::aborted, [&] { root.barrier(); });
    }
  });
}

TEST(VersionGate, GroupsReadersHoldTheOwnersBack) {
  Holds holds(3);
  run_ranks(3, [&](Gang& root) {
    const auto gangs = mesh_of(root);
    const auto group = make_shard_group(
        gangs, "g", {{.name = "w", .shape = Shape{7, 3}, .init = Init::ones()}}, ShardOptions{}, 1);
    Stream& stream = root.device().stream();
    for (int version = 0; version < 6; ++version) {
      group->unshard({}, stream);
      if (root.rank() == version % 3) holds.hold(version);
      EXPECT_EQ(get(group->view(0, Part::full_value)), Vector(21, version + 1.0));
      group->reshard(stream);
      holds.about_to_update(version);
      group->begin_update(stream);
      const Tensor own = group->view(0, Part::value);
      for (int64_t i = 0; i < own.count(); ++i) own.data<float>()[i] += 1;
      group->end_update(stream);
    }
  });
  EXPECT_EQ(holds.held(), 6);
}

}  // namespace
}  // namespace gangway::test
