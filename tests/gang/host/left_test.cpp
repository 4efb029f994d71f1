// What ranks see of one that let go of its gang without shutdown, and of one that breaks because of it; ranks as
// processes, which take their turns one after the other.
#include "gang/host/joined.h"

namespace gangway::test {
namespace {

constexpr size_t kCount = 1000;  // floats: read where they lie

Collective broadcast_of_rank_1(float* x) {
  Collective c;
  c.op = CollectiveOp::broadcast;
  c.peer = 1;
  c.in = c.out = x;
  c.count = kCount;
  return c;
}

// Of a child: it has come to `stage`, and waits for its turn to go on.
void come(Report& report, int stage) {
  report.stage = stage;
  while (report.turn < stage) usleep(500);
}
void let_go_on(Processes& ranks, int r) { ranks.report(r).turn = ranks.report(r).stage.load(); }

void expect_lost(Processes& ranks, int r, int lost, const std::string& begin, const std::string& end) {
  Report& report = ranks.report(r);
  EXPECT_TRUE(ranks.ended_well(r)) << report.text;
  EXPECT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
  EXPECT_EQ(report.peer, lost) << report.text;
  EXPECT_EQ(std::string(report.text).find(begin), 0u) << report.text;
  EXPECT_NE(std::string(report.text).find(end), std::string::npos) << report.text;
}

// Rank 1 gives its broadcast up, as rank 2 will not come. Rank 0 has its data by then, but rank 1 may write it again.
TEST(HostLeft, AThirdRankGetsTheLostRankAndNotTheOneThatGaveUp) {
  for (const bool killed : {false, true}) {
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      Joined joined(r, 3, store);
      std::vector<float> x(kCount);
      sum(joined, x);
      const auto block =
          Buffer::allocate(joined.engine->shared_memory()->allocator(), kCount * sizeof(float));
      const Collective c = broadcast_of_rank_1(r == 1 ? static_cast<float*>(block->data()) : x.data());
      WorkPtr begun;
      if (r == 0) begun = joined.engine->run(Channel::user, {&c, 1}, joined.stream());
      come(report, 1);
      if (r == 2) {
        joined.engine.reset();
        report.stage = 2;
      }
      if (r == 1) until_failure(report, [&] { now(*joined.engine, c, joined.stream()); });
      if (r == 0) until_failure(report, [&] { begun->wait_input(Deadline::never()); });
      stay_until_released(report);
    });
    for (const int r : {0, 1, 2}) ranks.wait_for_stage(r, 1);
    if (killed) {
      ranks.kill(2, SIGKILL);
    } else {
      let_go_on(ranks, 2);
      ranks.wait_for_stage(2, 2);
    }
    for (const int r : {1, 0}) {
      let_go_on(ranks, r);
      wait_for_failures(ranks, {r});
    }
    for (const int r : {0, 1, 2}) ranks.report(r).may_end = 1;
    for (const int r : {0, 1})
      expect_lost(ranks, r, 2, "gang.broadcast #1: rank 2 (host ",
                  killed ? "killed by signal 9; ranks 0, 1 are alive"
                         : "left without shutdown; ranks 0, 1 are alive");
  }
}

TEST(HostLeft, ARankThatWaitsForABrokenRankGetsTheReason) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store);
    std::vector<float> x(kCount);
    sum(joined, x);
    come(report, 1);
    if (r == 2) {
      joined.engine.reset();
      report.stage = 2;
    }
    if (r == 1) until_failure(report, [&] { sum(joined, x); });
    Collective c;
    c.op = CollectiveOp::recv;
    c.peer = 1;
    c.out = x.data();
    c.count = 1;
    if (r == 0) until_failure(report, [&] { now(*joined.engine, c, joined.stream()); });
    stay_until_released(report);
  });
  for (const int r : {0, 1, 2}) ranks.wait_for_stage(r, 1);
  let_go_on(ranks, 2);
  ranks.wait_for_stage(2, 2);
  for (const int r : {0, 1}) let_go_on(ranks, r);
  for (const int r : {0, 1}) wait_for_failures(ranks, {r});
  for (const int r : {0, 1, 2}) ranks.report(r).may_end = 1;
  expect_lost(ranks, 0, 2, "gang.recv #0: rank 2 (host ", "left without shutdown; ranks 0, 1 are alive");
  expect_lost(ranks, 1, 2, "gang.all_reduce #1: rank 2 (host ",
              "left without shutdown; ranks 0, 1 are alive");
}

TEST(HostLeft, ARankThatReleasesItsEngineDuringACallIsLost) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    std::vector<float> x(kCount);
    sum(joined, x);
    const auto block = Buffer::allocate(joined.engine->shared_memory()->allocator(), kCount * sizeof(float));
    const Collective c = broadcast_of_rank_1(r == 1 ? static_cast<float*>(block->data()) : x.data());
    come(report, 1);
    if (r == 1) {
      joined.engine->run(Channel::user, {&c, 1}, joined.stream());
      joined.engine.reset();
      report.stage = 2;
    } else {
      until_failure(report, [&] { now(*joined.engine, c, joined.stream()); });
    }
    stay_until_released(report);
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  let_go_on(ranks, 1);
  ranks.wait_for_stage(1, 2);
  let_go_on(ranks, 0);
  wait_for_failures(ranks, {0});
  for (const int r : {0, 1}) ranks.report(r).may_end = 1;
  expect_lost(ranks, 0, 1, "gang.broadcast #1: rank 1 (host ", "left without shutdown; rank 0 is alive");
}

// It had come: the gang stands, and a call says who has left.
TEST(HostLeft, ARankThatLeavesAsSoonAsTheGangIsMadeSpoilsNoStart) {
  for (int round = 0; round < 40; ++round) {
    Processes ranks(3, [](int r, const std::shared_ptr<Store>& store, Report& report) {
      Joined joined(r, 3, store);
      if (r == 2) return;
      std::vector<float> x(1, 1);
      until_failure(report, [&] { sum(joined, x); });
      stay_until_released(report);
    });
    release_after_failures(ranks, {0, 1});
    ranks.expect_all_well();
    for (const int r : {0, 1}) {
      EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(r).text;
      EXPECT_EQ(ranks.report(r).peer, 2) << ranks.report(r).text;
    }
  }
}

}  // namespace
}  // namespace gangway::test
