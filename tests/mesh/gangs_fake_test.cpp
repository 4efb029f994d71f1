// Gangs as one rank of a fake gang sees them, and the stack of current gangs.
#include <gtest/gtest.h>

#include <thread>

#include "base/expect_error.h"
#include "mesh/current.h"

namespace gangway {
namespace {

using test::error_of;
using test::expect_error;
using Members = std::vector<int>;

GangPtr fake(int rank, int size) {
  GangOptions options;
  options.threads = 1;
  return Gang::create_fake(rank, size, options, /*record=*/false);
}

TEST(Gangs, EightRanksWithTensorParallelTwo) {
  const GangsPtr gangs = create_parallel_gangs(fake(3, 8), /*tp=*/2);
  EXPECT_EQ(gangs->tp()->members(), (Members{2, 3}));
  EXPECT_EQ(gangs->dp()->members(), (Members{1, 3, 5, 7}));
  EXPECT_EQ(gangs->sdp(), gangs->dp());
  EXPECT_EQ(gangs->fsdp_gang(), gangs->dp());
  EXPECT_EQ(gangs->loss_gang(), gangs->dp());
  EXPECT_EQ(gangs->rdp()->members(), (Members{3}));
  EXPECT_EQ(gangs->pp()->size(), 1);
  EXPECT_EQ(gangs->cp()->size(), 1);
  EXPECT_EQ(gangs->root()->size(), 8);
  EXPECT_EQ(gangs->coordinate(Axis::tp), 1);
  EXPECT_EQ(gangs->coordinate(Axis::dp_shard), 1);
  int index = -1, count = -1;
  gangs->data_shard(&index, &count);
  EXPECT_EQ(index, 1);
  EXPECT_EQ(count, 4);
}

TEST(Gangs, FsdpSplitsDpIntoNodes) {
  const GangsPtr flat = create_gangs(fake(6, 8), MeshOptions{});
  const GangsPtr gangs = create_fsdp_gangs(*flat, 4);
  EXPECT_EQ(gangs->sdp()->members(), (Members{4, 5, 6, 7}));
  EXPECT_EQ(gangs->rdp()->members(), (Members{2, 6}));
  EXPECT_EQ(gangs->dp()->size(), 8);
  const GangsPtr none = create_fsdp_gangs(*flat, std::nullopt);
  EXPECT_EQ(none->sdp()->size(), 8);
  EXPECT_EQ(none->rdp()->size(), 1);
  const GangsPtr with_tp = create_fsdp_gangs(*create_parallel_gangs(fake(5, 8), 2), 2);
  EXPECT_EQ(with_tp->tp()->members(), (Members{4, 5}));
  EXPECT_EQ(with_tp->sdp()->members(), (Members{5, 7}));
  EXPECT_EQ(with_tp->rdp()->members(), (Members{1, 5}));
}

TEST(Gangs, RefusalsHaveBothNumbers) {
  expect_error(Code::invalid_argument, "tp 3 is not a factor of the root gang's 8 ranks",
               [] { create_parallel_gangs(fake(0, 8), 3); });
  expect_error(Code::invalid_argument, "tp 0 is not a factor of the root gang's 8 ranks",
               [] { create_parallel_gangs(fake(0, 8), 0); });
  expect_error(Code::invalid_argument, "pp -2 is not a factor of the root gang's 8 ranks",
               [] { create_parallel_gangs(fake(0, 8), 1, -2); });
  expect_error(Code::invalid_argument, "cp 16 is not a factor of the root gang's 8 ranks",
               [] { create_parallel_gangs(fake(0, 8), 1, 1, 16); });
  expect_error(
      Code::invalid_argument,
      "pp 4 x dp_replicate 1 x dp_shard auto x cp 1 x tp 4 = 16 x auto, but the root gang has 8 ranks",
      [] { create_parallel_gangs(fake(0, 8), 4, 4); });
  expect_error(Code::invalid_argument,
               "pp 2 x dp_replicate 1 x dp_shard 3 x cp 1 x tp 2 = 12, but the root gang has 8 ranks", [] {
                 create_gangs(fake(0, 8), {2, 1, 3, 1, 2});
               });
  const GangsPtr flat = create_gangs(fake(0, 8), MeshOptions{});
  for (const int bad : {1, 0, -4, 3, 16})
    expect_error(Code::invalid_argument,
                 text("intra_node_size ", bad, " is not a factor over 1 of the dp gang's 8 ranks"),
                 [&] { create_fsdp_gangs(*flat, bad); });
  const GangsPtr with_cp = create_parallel_gangs(fake(0, 8), 1, 1, 2);
  expect_error(Code::invalid_argument, "gangs for FSDP by node take no context parallelism, but cp is 2",
               [&] { create_fsdp_gangs(*with_cp, 2); });
  expect_error(Code::invalid_argument, "gang.create_fake: a fake gang needs a device with memory, not meta",
               [] { create_fake_gangs("meta"); });
}

TEST(Gangs, AGangByAxesIsMadeOnce) {
  const GangsPtr gangs = create_gangs(fake(0, 16), {2, 2, 2, 1, 2});
  const GangPtr made = gangs->by_axes("tp+pp");
  EXPECT_EQ(made->members(), (Members{0, 1, 8, 9}));
  EXPECT_EQ(gangs->by_axes("pp+tp"), made);
  EXPECT_EQ(gangs->by_axes("pp+cp+tp"), made);
  EXPECT_EQ(gangs->by_axes("dp_shard+cp"), gangs->sdp());
  EXPECT_EQ(gangs->by_axes("pp+dp+tp")->size(), 16);
  EXPECT_NE(gangs->by_axes("pp+dp+tp"), gangs->root());
}

TEST(Gangs, ClosingClosesWhatItMadeAndNotTheCallersRoot) {
  const GangPtr root = fake(0, 4);
  const GangsPtr gangs = create_parallel_gangs(root, 2);
  const GangPtr extra = gangs->by_axes("dp+tp");
  gangs->tp()->abort("broken");
  gangs->close(1000);
  gangs->close(1000);
  EXPECT_TRUE(gangs->dp()->is_shut_down());
  EXPECT_TRUE(gangs->pp()->is_shut_down());
  EXPECT_TRUE(extra->is_shut_down());
  EXPECT_FALSE(root->is_shut_down());
  expect_error(Code::invalid_state, "the gangs were closed; a gang by axes \"pp\" cannot be had",
               [&] { gangs->by_axes("pp"); });
}

TEST(Gangs, AnAbortBreaksEveryGang) {
  const GangsPtr gangs = create_parallel_gangs(fake(0, 4), 2);
  gangs->abort(Error(Code::caller, "module x failed"));
  for (const GangPtr& gang : {gangs->root(), gangs->dp(), gangs->tp(), gangs->pp()})
    EXPECT_EQ(gang->error()->message(), "module x failed");
}

TEST(Gangs, TheCallersGangsMustFitTheMesh) {
  const GangPtr root = fake(0, 4);
  GangsByAxis places;
  places.root = root;
  places.tp = root->create_gang(Members{0, 1});
  places.dp = places.sdp = root->create_gang(Members{0, 2});
  places.rdp = places.pp = root->alone();
  const auto make = [&] { create_gangs_of(places); };
  expect_error(Code::invalid_argument, "the cp gang is missing", make);
  places.cp = root->alone();
  const GangsPtr gangs = create_gangs_of(places);
  EXPECT_EQ(gangs->tp(), places.tp);
  EXPECT_EQ(gangs->fsdp_gang(), places.sdp);
  EXPECT_EQ(gangs->mesh().degree(Axis::tp), 2);
  gangs->close(1000);
  EXPECT_FALSE(places.tp->is_shut_down());

  places.tp = root->create_gang(Members{1, 0});
  expect_error(Code::invalid_argument,
               "rank 0 of the root gang is rank 1 of tp, but must be rank 0 of every gang", make);
  places.tp = root->create_gang(Members{0, 3});
  expect_error(Code::invalid_argument,
               "the members of tp on rank 0 of the root gang are not those of the mesh pp 1 x dp_replicate 1 "
               "x dp_shard "
               "2 x cp 1 x tp 2",
               make);
  places.tp = root->alone();
  expect_error(Code::invalid_argument,
               "pp 1 x dp_replicate 1 x dp_shard 2 x cp 1 x tp 1 = 2, but the root gang has 4 ranks", make);
  places.root = nullptr;
  expect_error(Code::invalid_argument, "the root gang is missing", make);
}

TEST(Gangs, FakeGangsHaveOneFakeRankInEveryPlace) {
  const GangsPtr gangs = create_fake_gangs("cpu");
  for (const GangPtr& gang : {gangs->root(), gangs->dp(), gangs->rdp(), gangs->sdp(), gangs->tp(),
                              gangs->pp(), gangs->cp(), gangs->fsdp_gang(), gangs->loss_gang()}) {
    EXPECT_EQ(gang->size(), 1);
    EXPECT_STREQ(gang->engine_name(), "fake");
  }
}

TEST(CurrentGangs, AreAStackPerThread) {
  const GangsPtr a = create_fake_gangs("cpu"), b = create_fake_gangs("cpu");
  EXPECT_EQ(maybe_current_gangs(), nullptr);
  expect_error(Code::invalid_state, "current gangs: the stack of this thread is empty",
               [&] { pop_current_gangs(a.get()); });
  push_current_gangs(a);
  push_current_gangs(b);
  EXPECT_EQ(maybe_current_gangs(), b);
  expect_error(Code::invalid_state,
               "current gangs: the top of this thread's stack (depth 2) is another one than the one to pop",
               [&] { pop_current_gangs(a.get()); });
  std::thread([] { EXPECT_EQ(maybe_current_gangs(), nullptr); }).join();
  pop_current_gangs(b.get());
  EXPECT_EQ(current_gangs("cpu"), a);
  pop_current_gangs(a.get());
  EXPECT_EQ(maybe_current_gangs(), nullptr);
  expect_error(Code::invalid_argument, "current gangs: null was pushed", [] { push_current_gangs(nullptr); });
}

TEST(CurrentGangs, FallBackToTheDevicesDefault) {
  const GangsPtr made = current_gangs("cpu");
  EXPECT_EQ(current_gangs("cpu"), made);
  EXPECT_EQ(made->root()->size(), 1);
  const GangsPtr own = create_fake_gangs("cpu");
  set_default_gangs("cpu", own);
  EXPECT_EQ(current_gangs("cpu"), own);
  set_default_gangs("cpu", nullptr);
  EXPECT_NE(current_gangs("cpu"), own);
  EXPECT_EQ(error_of([] { current_gangs("meta"); }).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace gangway
