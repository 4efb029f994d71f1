// What peers see of a rank that dies, with ranks as processes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "gang/host/joined.h"
#include "gang/host/mix.h"

namespace gangway::test {
namespace {

// Places in Report::values.
enum { kIsMade, kCallsBefore, kCallsAfter, kPairWorks, kSumAfterShrink, kCodeOfPair };

// What the victim does in which call when it dies is left to chance. GANGWAY_TEST_KILLS says how many die.
TEST(HostKill, KillsAtRandomPointsNameTheRightRank) {
  const char* const wanted = std::getenv("GANGWAY_TEST_KILLS");
  const uint64_t kills = wanted == nullptr ? 200 : std::stoull(wanted);
  std::map<std::string, int> calls;  // in which a survivor heard of it
  std::vector<double> took;
  for (uint64_t round = 0; round < kills; ++round) {
    auto random = [&, i = uint64_t{0}](uint64_t below) mutable {
      return static_cast<int>(drawn(12345 + round, i++) % below);
    };
    const int size = 2 + random(3), victim = random(static_cast<uint64_t>(size));
    const int before = 1 + random(50), later_us = random(2000);
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      Joined joined(r, size, store);
      HostMix mix(*joined.engine, *joined.rank, round);
      report.values[kIsMade] = 1;
      until_failure(report, [&] {
        mix.next();
        ++report.stage;
      });
    });
    for (int r = 0; r < size; ++r)
      ranks.wait_until(r, [](const Report& report) { return report.values[kIsMade] != 0; });
    ranks.wait_for_stage(victim, before);
    usleep(static_cast<useconds_t>(later_us));
    const int64_t killed = now_ns();
    ranks.kill(victim, SIGKILL);
    ranks.join();
    for (int r = 0; r < size; ++r) {
      if (r == victim) continue;
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r)) << "round " << round << " rank " << r << ": " << report.text;
      ASSERT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
      ASSERT_EQ(report.peer, victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", victim, " (host ").c_str()), nullptr) << report.text;
      ASSERT_EQ(std::strncmp(report.text, "gang.", 5), 0) << "no call is named: " << report.text;
      took.push_back(static_cast<double>(report.at_ns - killed) / 1e6);
      ++calls[std::string(report.text).substr(0, std::strcspn(report.text, " "))];
    }
  }
  std::sort(took.begin(), took.end());
  std::printf("survivors noticed after: median %.2f ms, p99 %.2f ms, most %.2f ms\n", took[took.size() / 2],
              took[took.size() * 99 / 100], took.back());
  for (const auto& [call, times] : calls) std::printf("%s: %d\n", call.c_str(), times);
}

TEST(HostKill, ARankThatExitsWithoutShutdownIsReported) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store);
    std::vector<float> x(10);
    sum(joined, x);
    if (r == 2) _exit(7);
    until_failure(report, [&] { sum(joined, x); });
    stay_until_released(report);
  });
  release_after_failures(ranks, {0, 1});
  ranks.join();
  for (const int r : {0, 1}) {
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost));
    EXPECT_EQ(ranks.report(r).peer, 2);
    EXPECT_NE(std::strstr(ranks.report(r).text, "gang.all_reduce #1: rank 2 (host "), nullptr)
        << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text, "left without shutdown"), nullptr) << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text, "exit code 7; ranks 0, 1 are alive"), nullptr)
        << ranks.report(r).text;
  }
}

TEST(HostKill, ASurvivorThatComputesGetsTheLossAtItsNextCall) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    const std::vector<int> both{0, 1};
    const auto other = joined.engine->create(both, "child");
    std::vector<float> x(10);
    sum(joined, x);
    report.stage = 1;
    if (r == 1)
      for (;;) pause();
    while (!other->error()) usleep(500);  // the loss is on the arena now; the other engine has not looked
    report.values[kCallsBefore] = static_cast<int64_t>(joined.engine->traffic().calls);
    until_failure(report, [&] { sum(joined, x); });
    report.values[kCallsAfter] = static_cast<int64_t>(joined.engine->traffic().calls);
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGKILL);
  ranks.join();
  Report& report = ranks.report(0);
  EXPECT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
  EXPECT_NE(std::strstr(report.text, "gang.all_reduce #1: rank 1 (host "), nullptr) << report.text;
  EXPECT_NE(std::strstr(report.text, "killed by signal 9; rank 0 is alive"), nullptr) << report.text;
  EXPECT_EQ(report.values[kCallsAfter], report.values[kCallsBefore]);
}

TEST(HostKill, AStoppedRankIsLostByTheLivenessLimit) {
  EngineOptions options = small_arena();
  options.liveness_ms = 300;
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store, options);
    std::vector<float> x(10);
    int i = 0;
    until_failure(report, [&] {
      sum(joined, x);
      report.stage = ++i;
    });
    stay_until_released(report);
  });
  ranks.wait_for_stage(1, 10);
  usleep(400'000);  // more than the limit: who lives is not lost
  ranks.kill(1, SIGSTOP);
  release_after_failures(ranks, {0, 2});
  for (const int r : {0, 2}) {
    EXPECT_EQ(ranks.report(r).peer, 1) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost)) << "not by the gang's deadline";
    EXPECT_NE(std::strstr(ranks.report(r).text, "no heartbeat for 300 ms; ranks 0, 2 are alive"), nullptr)
        << ranks.report(r).text;
  }
  EXPECT_TRUE(ranks.runs(1)) << "its process is there, so no death was reported";
  ranks.kill(1, SIGKILL);
}

// It was stopped before the last peer came, and goes on after its deadline.
TEST(HostKill, ARankThatWasStoppedPastItsDeadlineSeesThatAllCame) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    report.stage = 1;
    if (r == 1) stay_until_released(report);
    joined.engine->shutdown(Deadline::after_ms(r == 0 ? 1000 : 60'000));
    EXPECT_FALSE(joined.engine->error().has_value()) << joined.engine->error()->message();
    report.stage = 2;
  });
  ranks.wait_for_stage(0, 1);
  usleep(200'000);  // it sleeps in its shutdown
  ranks.kill(0, SIGSTOP);
  ranks.report(1).may_end = 1;
  ranks.wait_for_stage(1, 2);
  usleep(1'000'000);
  ranks.kill(0, SIGCONT);
  ranks.expect_all_well();
}

TEST(HostKill, ALostRankBreaksEveryGangThatHoldsItAndNoOther) {
  Processes ranks(4, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 4, store);
    const std::vector<int> low{0, 1}, high{2, 3};
    const auto mine = joined.engine->create(r < 2 ? low : high, "child");
    Joined pair = joined;
    pair.engine = mine;
    std::vector<float> x(10);
    sum(pair, x);
    report.stage = 1;
    if (r == 3)
      for (;;) pause();
    until_failure(report, [&] {
      if (r == 2) sum(pair, x);
      sum(joined, x);
    });
    if (r < 2) {  // the pair of the living works on
      x.assign(10, 1);
      sum(pair, x);
      report.values[kPairWorks] = x[0] == 2;
      std::vector<int> rest{0, 1, 2};
      Joined less = joined;
      less.engine = joined.engine->shrink(rest);
      x.assign(10, 1);
      sum(less, x);
      report.values[kSumAfterShrink] = static_cast<int64_t>(x[0]);
    } else {
      report.values[kCodeOfPair] = static_cast<int64_t>(mine->error()->code());
      // The root may have been whole for this rank so far.
      try {
        sum(joined, x);
      } catch (const Error&) {
      }
      std::vector<int> rest{0, 1, 2};
      Joined less = joined;
      less.engine = joined.engine->shrink(rest);
      x.assign(10, 1);
      sum(less, x);
      report.values[kSumAfterShrink] = static_cast<int64_t>(x[0]);
    }
  });
  for (const int r : {2, 3}) ranks.wait_for_stage(r, 1);
  ranks.kill(3, SIGKILL);
  ranks.join();
  for (const int r : {0, 1, 2}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).values[kSumAfterShrink], 3) << r;
  }
  EXPECT_EQ(ranks.report(0).values[kPairWorks], 1);
  EXPECT_EQ(ranks.report(2).values[kCodeOfPair], static_cast<int64_t>(Code::peer_lost));
}

TEST(HostKill, ASharedRegionIsFreedWhenTheLivingHaveLetGoOfIt) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  constexpr size_t kBytes = 60 << 20;  // one fits, two do not
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store, options);
    std::optional<SharedRegion> region(joined.engine->shared_memory()->allocate(kBytes));
    std::vector<float> x(10);
    sum(joined, x);
    report.stage = 1;
    if (r == 1)
      for (;;) pause();
    until_failure(report, [&] { sum(joined, x); });
    std::vector<int> rest{0, 2};
    joined.engine = joined.engine->shrink(rest);
    region.reset();
    sum(joined, x);  // both have let go
    region.emplace(joined.engine->shared_memory()->allocate(kBytes));
    joined.engine->shutdown(Deadline::after_ms(60'000));
  });
  for (const int r : {0, 1, 2}) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGKILL);
  ranks.join();
  for (const int r : {0, 2}) EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
}

}  // namespace
}  // namespace gangway::test
