// The ownership fence: an owner updates its rows while a peer is held in the middle of a use of the old ones.
#include <chrono>
#include <thread>

#include "parallel/shard_group.h"
#include "parallel/trial.h"

namespace gangway::test {
namespace {

using namespace std::chrono_literals;

// Holds a rank for 50 ms where the test says, in the middle of a model.
class Held final : public Module {
 public:
  static inline thread_local bool in_forward = false, in_backward = false;
  const char* kind() const override { return "Held"; }
  Values forward(Context&, std::span<const Tensor> inputs, Frame*) override {
    if (in_forward) std::this_thread::sleep_for(50ms);
    return {inputs[0]};
  }
  Values backward(Context&, std::span<const Tensor> dy, Frame&) override {
    if (in_backward) std::this_thread::sleep_for(50ms);
    return {dy[0]};
  }
};

// Backward passes `Held` before it reads the weights of "0".
ModulePtr held() {
  return make_sequential(
      {make_linear(6, 8, true, 0.5), std::make_shared<Held>(), make_linear(8, 6, true, 0.5)});
}

void update(Model& model, double factor) {
  Stream& stream = model.device().stream();
  model.begin_update(stream);
  for (const NamedParameter& p : model.parameters())
    if (p.parameter->shard.count() != 0) model.ops().scale(p.parameter->shard, factor, stream);
  model.end_update(stream);
}

double milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

struct Use {
  Vector output, input_gradient;
};

Use use(Model& model, bool backward) {
  Context ctx = model.context(model.device().stream());
  const Tensor x = make(model.device(), DType::f64, Shape{3, 6}, random_vector(18, 1));
  Use result;
  if (!backward) {
    result.output = get(model.forward(ctx, {&x, 1}, nullptr)[0]);
    model.temporaries().reset();
    return result;
  }
  Frame& frame = model.frame(0);
  const Tensor y = model.forward(ctx, {&x, 1}, &frame)[0];
  result.output = get(y);
  const Tensor dy = frame.allocate_gradient(DType::f64, y.shape());
  put(dy, random_vector(18, 2));
  result.input_gradient = get(model.backward(ctx, {&dy, 1}, frame)[0]);
  frame.reset();
  return result;
}

std::unique_ptr<Model> make_held(Gang& root, Strategy strategy, bool trainable, bool regions) {
  auto model = std::make_unique<Model>(held(), mesh_of(root));
  model->domain().use_regions(regions);
  for (const NamedParameter& p : named_parameters(model->root()))
    p.parameter->trainable = trainable && p.name.starts_with("2.");
  ParallelOptions options;
  options.master_dtype = DType::f64;
  options.shard.strategy = strategy;
  model->parallelize(options);
  return model;
}

// Every rank in turn is the slow one. All-frozen: no reduction orders anything, the fence alone does.
void expect_old_bits(int ranks, bool backward, bool trainable, bool regions) {
  std::vector<Use> want;  // by version, on one rank
  run_ranks(1, [&](Gang& root) {
    const auto model = make_held(root, Strategy::full_shard, trainable, regions);
    for (int version = 0; version <= ranks; ++version) {
      want.push_back(use(*model, backward));
      update(*model, 2);
    }
  });
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op})
    run_ranks(ranks, [&](Gang& root) {
      const auto model = make_held(root, strategy, trainable, regions);
      for (int version = 0; version <= ranks; ++version) {
        const bool slow = version < ranks && root.rank() == version;
        Held::in_forward = slow && !backward;
        Held::in_backward = slow && backward;
        const Use got = use(*model, backward);
        EXPECT_EQ(got.output, want[static_cast<size_t>(version)].output) << "version " << version;
        EXPECT_EQ(got.input_gradient, want[static_cast<size_t>(version)].input_gradient)
            << "version " << version;
        const auto start = std::chrono::steady_clock::now();
        update(*model, 2);
        if (!slow && version < ranks) {
          EXPECT_GE(milliseconds(start), 25) << "the update waited for the reader";
        }
      }
    });
}

TEST(Fence, PeerHeldInsideBackwardReadsOldBits) { expect_old_bits(3, true, false, true); }
TEST(Fence, PeerHeldInsideBackwardReadsOldBitsOfAFrozenUnit) { expect_old_bits(2, true, true, true); }
TEST(Fence, PeerHeldInsideEvaluationReadsOldBits) { expect_old_bits(3, false, false, true); }
TEST(Fence, PrivateShardsAreFencedToo) {
  // The rows that a peer reads are copied when they are gathered; what is held here is the peer's own gather.
  run_ranks(2, [&](Gang& root) {
    const auto model = make_held(root, Strategy::full_shard, false, false);
    const Vector before = use(*model, false).output;
    Held::in_forward = root.rank() == 1;
    EXPECT_EQ(use(*model, false).output, before) << "unit 2 is gathered ahead, before the hold";
    update(*model, 2);
    Held::in_forward = false;
    EXPECT_NE(use(*model, false).output, before);
  });
}

TEST(Fence, UnitsStillUnshardedRefuseAnUpdateAndAreNamed) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [](Gang& root) {
      const auto model = make_held(root, Strategy::shard_grad_op, true, true);
      Stream& stream = model->device().stream();
      Context ctx = model->context(stream);
      const Tensor x = make(model->device(), DType::f64, Shape{3, 6}, random_vector(18, 1));
      model->forward(ctx, {&x, 1}, &model->frame(0));
      expect_refusal(Code::invalid_state, [&] { model->begin_update(stream); }, {"unit (root)", "unsharded"});
      const Tensor dy = model->frame(0).allocate_gradient(DType::f64, Shape{3, 6});
      put(dy, random_vector(18, 2));
      model->backward(ctx, {&dy, 1}, model->frame(0));
      update(*model, 2);
      expect_refusal(Code::invalid_state, [&] { model->end_update(stream); }, {"begin_update comes first"});
      model->begin_update(stream);
      expect_refusal(Code::invalid_state, [&] { model->begin_update(stream); }, {"end_update"});
      expect_refusal(Code::invalid_state, [&] { model->forward(ctx, {&x, 1}, nullptr); }, {"between"});
      model->end_update(stream);
    });
}

TEST(Fence, GroupsReadersHoldTheOwnersBack) {
  run_ranks(3, [](Gang& root) {
    const auto gangs = mesh_of(root);
    const auto group = make_shard_group(
        gangs, "g", {{.name = "w", .shape = Shape{7, 3}, .init = Init::ones()}}, ShardOptions{}, 1);
    Stream& stream = root.device().stream();
    for (int version = 0; version < 6; ++version) {
      group->unshard({}, stream);
      if (root.rank() == version % 3) std::this_thread::sleep_for(20ms);
      EXPECT_EQ(get(group->view(0, Part::full_value)), Vector(21, version + 1.0));
      group->reshard(stream);
      group->begin_update(stream);
      const Tensor own = group->view(0, Part::value);
      for (int64_t i = 0; i < own.count(); ++i) own.data<float>()[i] += 1;
      group->end_update(stream);
    }
  });
}

}  // namespace
}  // namespace gangway::test
