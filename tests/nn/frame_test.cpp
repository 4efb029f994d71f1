#include "nn/frame.h"

#include <cstring>

#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;

// Saves nothing, counts its recomputations and weight tasks.
class Probe final : public Module {
 public:
  const char* kind() const override { return "Probe"; }
  Values forward(Context&, std::span<const Tensor> inputs, Frame*) override { return {inputs[0]}; }
  Values backward(Context&, std::span<const Tensor> dy, Frame&) override { return {dy[0]}; }
  void backward_weight(Context&, Frame& frame, int index, const Tensor&) override {
    ran.push_back(index);
    frames.push_back(&frame);
  }
  Tensor recompute(Context&, Frame& frame, int index) override {
    ++recomputed;
    const Tensor again = frame.allocate_gradient(DType::f64, Shape{6});
    put(again, Vector(6, index));
    return again;
  }

  std::vector<int> ran;
  std::vector<Frame*> frames;
  int recomputed = 0;
};

struct FrameTest : testing::Test {
  Rig rig;
  Context ctx = rig.context();
  Frame frame{rig.device->allocator()};
  SavedSlots& slots = frame.slots();
  Probe probe, other;
};

TEST_F(FrameTest, GivesBackWhatWasSaved) {
  const Tensor x = frame.allocate(DType::f64, {3});
  slots.save(probe, 0, x);
  slots.save(other, 0, rig.normal({2}, 1));
  EXPECT_EQ(slots.load(ctx, probe, 0).raw(), x.raw());
  EXPECT_TRUE(slots.holds(other, 0));
  EXPECT_FALSE(slots.holds(other, 1));
}

TEST_F(FrameTest, RefusesTakenAndEmptySlots) {
  slots.save(probe, 3, frame.allocate(DType::f64, {3}));
  expect_text(expect_error(Code::invalid_state, [&] { slots.save(probe, 3, rig.normal({3}, 1)); }),
              {"Probe", "slot 3"});
  expect_text(expect_error(Code::invalid_state, [&] { slots.load(ctx, other, 2); }), {"Probe", "slot 2"});
  frame.reset();
  slots.save(probe, 3, rig.normal({3}, 1));
}

TEST_F(FrameTest, ARecomputableTensorIsRecomputedOnce) {
  const Tensor y = rig.temporaries.allocate(DType::f64, {2, 3});
  slots.recomputable(y, probe, 5, RecomputeWhen::when_loaded);
  slots.save(other, 0, y);
  slots.save(other, 1, y.reshape({3, 2}));
  EXPECT_EQ(frame.saved_bytes(), 0u);
  const Tensor again = slots.load(ctx, other, 0);
  EXPECT_EQ(again.shape(), (Shape{2, 3}));
  EXPECT_EQ(get(again), Vector(6, 5));
  EXPECT_EQ(slots.load(ctx, other, 1).shape(), (Shape{3, 2}));
  EXPECT_EQ(slots.load(ctx, other, 1).raw(), again.raw());
  EXPECT_EQ(probe.recomputed, 1);
}

TEST_F(FrameTest, ProducersBackwardRecomputesWhatWasSaved) {
  const Tensor y = rig.temporaries.allocate(DType::f64, {6}), z = rig.temporaries.allocate(DType::f64, {6});
  slots.recomputable(y, probe, 0, RecomputeWhen::in_backward);
  slots.recomputable(z, probe, 1, RecomputeWhen::in_backward);
  slots.save(other, 0, y);
  EXPECT_TRUE(slots.needs_recompute(probe, 0));
  EXPECT_FALSE(slots.needs_recompute(probe, 1)) << "nobody saved it";
  EXPECT_FALSE(slots.needs_recompute(other, 0));
  slots.prepare(ctx, other, 0);
  EXPECT_EQ(probe.recomputed, 0) << "its backward is still to come";
  const Tensor again = frame.allocate_gradient(DType::f64, {6});
  slots.set_recomputed(probe, 0, again);
  EXPECT_FALSE(slots.needs_recompute(probe, 0));
  EXPECT_EQ(slots.load(ctx, other, 0).raw(), again.raw());
  EXPECT_EQ(probe.recomputed, 0);
}

TEST_F(FrameTest, LoadBeforeTheProducersBackwardMakesItOnce) {
  const Tensor y = rig.temporaries.allocate(DType::f64, {6});
  slots.recomputable(y, probe, 3, RecomputeWhen::in_backward);
  slots.save(other, 0, y);
  EXPECT_EQ(get(slots.load(ctx, other, 0)), Vector(6, 3));
  EXPECT_FALSE(slots.needs_recompute(probe, 3));
  EXPECT_EQ(probe.recomputed, 1);
}

TEST_F(FrameTest, PrepareRecomputesWhatNoBackwardRecomputes) {
  const Tensor y = rig.temporaries.allocate(DType::f64, {6});
  slots.recomputable(y, probe, 2, RecomputeWhen::when_loaded);
  slots.save(other, 0, y);
  slots.save(other, 1, frame.allocate(DType::f64, {3}));
  slots.prepare(ctx, other, 1);
  EXPECT_EQ(probe.recomputed, 0);
  slots.prepare(ctx, other, 0);
  slots.load(ctx, other, 0);
  EXPECT_EQ(probe.recomputed, 1);
  expect_text(expect_error(Code::invalid_state, [&] { slots.prepare(ctx, other, 2); }), {"Probe", "slot 2"});
}

TEST_F(FrameTest, ARecomputableTensorCanBeKept) {
  const Tensor y = rig.temporaries.allocate(DType::f64, {6}), plain = frame.allocate(DType::f64, {6});
  put(y, Vector(6, 2));
  slots.recomputable(y, probe, 0, RecomputeWhen::in_backward);
  EXPECT_EQ(slots.kept(ctx, plain).raw(), plain.raw());
  EXPECT_FALSE(slots.kept(ctx, Tensor()));
  slots.save(other, 0, slots.kept(ctx, y));
  EXPECT_FALSE(slots.needs_recompute(probe, 0));
  EXPECT_EQ(get(slots.load(ctx, other, 0)), Vector(6, 2));
  EXPECT_EQ(probe.recomputed, 0);
}

TEST_F(FrameTest, LaterAnnouncementAtTheSameAddressWins) {
  for (int index : {1, 2}) {
    StackScope scope(rig.temporaries);
    const Tensor y = rig.temporaries.allocate(DType::f64, {6});
    slots.recomputable(y, probe, index, RecomputeWhen::when_loaded);
    slots.save(other, index, y);
  }
  EXPECT_EQ(get(slots.load(ctx, other, 1)), Vector(6, 1));
  EXPECT_EQ(get(slots.load(ctx, other, 2)), Vector(6, 2));
}

TEST_F(FrameTest, RecomputableTensorsAreDistinguishedOnMeta) {
  Rig meta("meta");
  Context shape_only = meta.context();
  Frame own(meta.device->allocator());
  const Tensor announced = meta.temporaries.allocate(DType::f64, {6}), kept = own.allocate(DType::f64, {6});
  own.slots().recomputable(announced, probe, 0, RecomputeWhen::when_loaded);
  own.slots().save(other, 0, kept);
  EXPECT_EQ(own.slots().load(shape_only, other, 0).buffer(), kept.buffer());
  EXPECT_EQ(probe.recomputed, 0);
}

TEST_F(FrameTest, DrainRunsTheOldestTasksFirst) {
  for (int i = 0; i < 5; ++i) frame.push_weight(probe, i, frame.allocate_gradient(DType::f64, {1}));
  EXPECT_EQ(frame.run_weight_gradients(ctx, 2), 2u);
  EXPECT_EQ(probe.ran, (std::vector<int>{0, 1}));
  EXPECT_EQ(frame.pending_weight(), 3u);
  EXPECT_EQ(frame.run_weight_gradients(ctx), 3u);
  EXPECT_EQ(frame.run_weight_gradients(ctx), 0u);
  EXPECT_EQ(probe.ran, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_F(FrameTest, NestedFramesAreDrainedAndCounted) {
  Frame& inner = frame.nest();
  Frame& second = frame.nest();
  EXPECT_NE(&inner, &second);
  inner.push_weight(probe, 1, {});
  second.push_weight(probe, 2, {});
  frame.push_weight(probe, 0, {});
  EXPECT_EQ(frame.pending_weight(), 3u);
  EXPECT_EQ(frame.run_weight_gradients(ctx, 2), 2u);
  EXPECT_EQ(frame.run_weight_gradients(ctx), 1u);
  EXPECT_EQ(probe.ran, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(probe.frames, (std::vector<Frame*>{&frame, &inner, &second}))
      << "each task sees the frame it was pushed in";
}

TEST_F(FrameTest, NestedFrameInheritsAndIsReusedAfterSettle) {
  frame.id = {3, 2, 1};
  frame.recompute = Recompute::selective;
  Frame& inner = frame.nest();
  EXPECT_EQ(inner.id.step, 3);
  EXPECT_EQ(inner.recompute, Recompute::selective);
  inner.slots().save(probe, 0, inner.allocate(DType::f64, {4}));
  const Stack::Mark mark = frame.mark();
  const Tensor dx = inner.allocate_gradient(DType::f64, {4});
  put(dx, {1, 2, 3, 4});
  EXPECT_EQ(get(frame.compact(ctx, mark, dx)), (Vector{1, 2, 3, 4}));
  EXPECT_EQ(&frame.nest(), &inner);
  EXPECT_FALSE(inner.slots().holds(probe, 0));
  EXPECT_EQ(inner.saved_bytes(), 0u);
}

TEST_F(FrameTest, SettleMovesTheGradientDownAndDrains) {
  frame.allocate_gradient(DType::f64, {8});  // below the mark
  const Stack::Mark mark = frame.mark();
  const Tensor first = frame.allocate_gradient(DType::f64, {16});
  const Tensor dx =
      frame.allocate_gradient(DType::f64, {64});  // overlaps its place below by 384 of 512 bytes
  Vector values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  put(dx, values);
  frame.push_weight(probe, 0, dx);
  const Tensor down = frame.compact(ctx, mark, dx);
  EXPECT_EQ(probe.ran, (std::vector<int>{0}));
  EXPECT_EQ(down.raw(), first.raw());
  EXPECT_EQ(get(down), values);
  const Tensor next = frame.allocate_gradient(DType::f64, {1});
  EXPECT_EQ(static_cast<char*>(next.raw()) - static_cast<char*>(down.raw()), 512);
  EXPECT_FALSE(frame.compact(ctx, mark, Tensor()));
  EXPECT_EQ(frame.allocate_gradient(DType::f64, {1}).raw(), first.raw());
}

TEST_F(FrameTest, FoldAddsAndGivesBackWhatLiesAlone) {
  const Tensor dx = frame.allocate_gradient(DType::f64, {4});
  put(dx, {1, 2, 3, 4});
  const Stack::Mark mark = frame.mark();
  const Tensor alone = frame.allocate_gradient(DType::f64, {4});
  put(alone, {10, 20, 30, 40});
  frame.add_gradient(ctx, dx, alone, mark);
  EXPECT_EQ(get(dx), (Vector{11, 22, 33, 44}));
  const Tensor again = frame.allocate_gradient(DType::f64, {4}),
               beside = frame.allocate_gradient(DType::f64, {4});
  EXPECT_EQ(again.raw(), alone.raw());
  put(beside, {1, 1, 1, 1});
  frame.add_gradient(ctx, dx, beside, mark);
  EXPECT_EQ(get(dx), (Vector{12, 23, 34, 45}));
  EXPECT_NE(frame.allocate_gradient(DType::f64, {4}).raw(), again.raw()) << "somebody took more";
}

TEST_F(FrameTest, SettleDoesNothingWhenWeightsAreDeferred) {
  ctx.defer_weight = true;
  const Stack::Mark mark = frame.mark();
  frame.allocate_gradient(DType::f64, {16});
  const Tensor dx = frame.allocate_gradient(DType::f64, {16});
  frame.push_weight(probe, 0, dx);
  EXPECT_EQ(frame.compact(ctx, mark, dx).raw(), dx.raw());
  EXPECT_EQ(frame.pending_weight(), 1u);
}

TEST_F(FrameTest, SettleForgetsRecomputedTensorsItGaveBack) {
  const Tensor y = rig.temporaries.allocate(DType::f64, {6});
  slots.recomputable(y, probe, 4, RecomputeWhen::when_loaded);
  slots.save(other, 0, y);
  const Stack::Mark mark = frame.mark();
  slots.load(ctx, other, 0);
  frame.compact(ctx, mark, Tensor());
  put(frame.allocate_gradient(DType::f64, {6}), Vector(6, 9));
  EXPECT_EQ(get(slots.load(ctx, other, 0)), Vector(6, 4));
  EXPECT_EQ(probe.recomputed, 2);
}

TEST_F(FrameTest, AddressesRepeatAfterReset) {
  const void* activation = frame.allocate(DType::f32, {1000}).raw();
  const void* gradient = frame.allocate_gradient(DType::f32, {1000}).raw();
  EXPECT_EQ(frame.activation_bytes(), 4032u);
  frame.reset();
  EXPECT_EQ(frame.saved_bytes(), 0u);
  EXPECT_EQ(frame.allocate(DType::f32, {1000}).raw(), activation);
  EXPECT_EQ(frame.allocate_gradient(DType::f32, {1000}).raw(), gradient);
}

// Counts how often work enters it.
struct CountedPart final : SavedPart {
  explicit CountedPart(Rig& rig) : memory(rig.device->allocator()) {}
  Tensor allocate(DType dtype, const Shape& shape) override { return memory.allocate(dtype, shape); }
  void enter(Stream&) override { ++entered; }

  Stack memory;
  int entered = 0;
};

TEST_F(FrameTest, AllocatesFromThePartOnlyWhileThePartIsSaving) {
  CountedPart part(rig);
  frame.parts().set_saving(&part);
  frame.allocate(DType::f64, {8});
  EXPECT_EQ(part.memory.used_bytes(), 64u);
  EXPECT_EQ(frame.saved_bytes(), 0u);
  frame.parts().set_saving(nullptr);
  frame.allocate(DType::f64, {16});
  EXPECT_EQ(part.memory.used_bytes(), 64u);
  EXPECT_EQ(frame.saved_bytes(), 128u);
}

TEST_F(FrameTest, AWeightTaskEntersThePartInWhoseBackwardItWasPushed) {
  CountedPart part(rig);
  frame.parts().set_backward(&part);
  frame.push_weight(probe, 0, {});
  frame.nest().push_weight(probe, 1, {});
  frame.parts().set_backward(nullptr);
  frame.push_weight(probe, 2, {});
  EXPECT_EQ(frame.run_weight_gradients(ctx), 3u);
  EXPECT_EQ(part.entered, 2);
}

TEST_F(FrameTest, APartIsFoundUntilItIsDropped) {
  const auto first = std::make_shared<CountedPart>(rig), second = std::make_shared<CountedPart>(rig);
  EXPECT_EQ(frame.parts().last(), nullptr);
  frame.parts().add(probe, first);
  frame.parts().add(other, second);
  EXPECT_EQ(frame.parts().of(probe), first);
  EXPECT_EQ(frame.parts().last(), second);
  frame.parts().drop(other);
  EXPECT_EQ(frame.parts().of(other), nullptr);
  EXPECT_EQ(frame.parts().last(), first);
  frame.reset();
  EXPECT_EQ(frame.parts().of(probe), nullptr);
}

TEST_F(FrameTest, UserStateIsFreedExactlyOnce) {
  int freed = 0;
  const auto state = [&] {
    return UserState{&freed, [](void*, void* count) { ++*static_cast<int*>(count); }, &freed};
  };
  frame.user_states().set(probe, state());
  EXPECT_EQ(frame.user_states().get(probe), &freed);
  EXPECT_EQ(frame.user_states().get(other), nullptr);
  frame.user_states().free(probe);
  frame.user_states().free(probe);
  EXPECT_EQ(freed, 1);
  frame.user_states().set(probe, state());
  frame.reset();
  EXPECT_EQ(freed, 2);
  frame.user_states().set(probe, state());
  expect_error(Code::invalid_state, [&] { frame.user_states().set(probe, state()); });
  EXPECT_EQ(freed, 3) << "the refused one is not lost";
  {
    Frame inner(rig.device->allocator());
    inner.user_states().set(probe, state());
  }
  EXPECT_EQ(freed, 4);
}

}  // namespace
}  // namespace gangway
