// The survivors of a broken engine, with ranks as processes: who is left out touches their memory no more.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "gang/host/mix.h"
#include "gang/host/outlive.h"

namespace gangway::test {
namespace {

// --- a rank that stops in the middle of a move -----------------------------------------------------------

unsigned char* trap_page = nullptr;
Report* trap_report = nullptr;

void stop_at_trap(int) {
  trap_report->stage = 2;
  raise(SIGSTOP);
  mprotect(trap_page, 4096, PROT_READ | PROT_WRITE);
}

// The process stops when it first reads the page at `at`, and goes on with its read after SIGCONT.
void set_trap(void* at, Report& report) {
  trap_page = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(at) / 4096 * 4096);
  trap_report = &report;
  signal(SIGSEGV, stop_at_trap);
  mprotect(trap_page, 4096, PROT_NONE);
}

constexpr size_t kCount = 300'000;
enum { kIntact, kMembers, kPassedOver, kSum };  // places in Report::values

struct Stopped {
  Joined joined;
  std::shared_ptr<Buffer> x;

  Stopped(int r, const std::shared_ptr<Store>& store, const EngineOptions& options)
      : joined(r, 3, store, options),
        x(Buffer::allocate(joined.engine->shared_memory()->allocator(), kCount * sizeof(float))) {
    std::fill_n(data(), kCount, 1.0f);
    sum();
  }
  float* data() const { return static_cast<float*>(x->data()); }
  // In the arena: each rank folds a third of it straight into all outputs.
  void sum() {
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.reduce = Reduce::sum;
    c.in = c.out = data();
    c.count = kCount;
    now(*joined.engine, c, joined.stream());
  }
};

EngineOptions lively() {
  EngineOptions options = small_arena();
  options.liveness_ms = 2000;  // a rank that lacks a core is not lost
  return options;
}

TEST(HostShrink, AStoppedRankWritesNothingIntoSurvivorsMemoryAfterAShrink) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Stopped rank(r, store, lively());
    if (r == 1) set_trap(rank.data() + kCount / 2, report);  // in its own third
    until_failure(report, [&] { rank.sum(); });
    if (r != 1) {
      std::vector<int> rest{0, 2};
      const auto less = rank.joined.engine->shrink(rest);
      std::fill_n(rank.data(), kCount, 7.0f);
      report.stage = 3;  // its memory is its own
      stay_until_released(report);
      report.values[kIntact] = std::count(rank.data(), rank.data() + kCount, 7.0f);
    }
  });
  ranks.wait_for_stage(1, 2);
  wait_for_failures(ranks, {0, 2});
  // Whether they wait for it in shrink or have gone on: now it goes on.
  for (int i = 0; i < 200 && (ranks.report(0).stage != 3 || ranks.report(2).stage != 3); ++i) usleep(1000);
  ranks.kill(1, SIGCONT);
  wait_for_failures(ranks, {1});
  for (const int r : {0, 2}) ranks.wait_for_stage(r, 3);
  for (const int r : {0, 2}) ranks.report(r).may_end = 1;
  ranks.expect_all_well();
  EXPECT_EQ(ranks.report(1).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(1).text;
  for (const int r : {0, 2}) EXPECT_EQ(ranks.report(r).values[kIntact], int64_t{kCount}) << "rank " << r;
}

TEST(HostShrink, ARankThatStaysStoppedInAMoveIsNamedByTheDeadlineUntilItDies) {
  EngineOptions options = lively();
  options.timeout_ms = 3000;
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Stopped rank(r, store, options);
    if (r == 1) set_trap(rank.data() + kCount / 2, report);
    until_failure(report, [&] { rank.sum(); });
    report.has_failed = 0;
    std::vector<int> rest{0, 2};
    until_failure(report, [&] { rank.joined.engine->shrink(rest); });
    stay_until_released(report);
    rank.joined.engine->shrink(rest);
  });
  ranks.wait_for_stage(1, 2);
  wait_for_failures(ranks, {0, 2});
  ranks.kill(1, SIGKILL);
  for (const int r : {0, 2}) ranks.report(r).may_end = 1;
  ranks.join();
  for (const int r : {0, 2}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::timeout)) << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text,
                          text(", pid ", ranks.pid(1), ") is left out, but it lives").c_str()),
              nullptr)
        << ranks.report(r).text;
  }
}

// --- ranks that die while the others shrink --------------------------------------------------------------

TEST(HostShrink, DeathsDuringAShrinkLeaveTheSurvivorsAgreed) {
  constexpr int kSize = 8;
  std::vector<double> took;
  for (uint64_t round = 0; round < 40; ++round) {
    auto random = [&, i = uint64_t{0}](uint64_t below) mutable { return drawn(777 + round, i++) % below; };
    std::vector<int> victims;
    while (victims.size() < 2 + round % 4)
      if (const int v = static_cast<int>(random(kSize));
          std::find(victims.begin(), victims.end(), v) == victims.end())
        victims.push_back(v);
    EngineOptions options = small_arena();
    options.timeout_ms = 20'000;
    Processes ranks(kSize, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      Joined joined(r, kSize, store, options);
      const std::vector<int> left = outlive(joined, kSize - victims.size(), report);
      for (const int member : left) report.values[kMembers] |= 1 << member;
      joined.engine->shutdown(Deadline::after_ms(20'000));
    });
    for (int r = 0; r < kSize; ++r) ranks.wait_for_stage(r, 1);
    int64_t killed = 0;
    for (const int victim : victims) {
      usleep(static_cast<useconds_t>(random(3000)));  // some come into the middle of a shrink
      killed = now_ns();
      ranks.kill(victim, SIGKILL);
    }
    ranks.join();
    int64_t left = (1 << kSize) - 1;
    for (const int victim : victims) left &= ~(1 << victim);
    for (int r = 0; r < kSize; ++r) {
      if (std::find(victims.begin(), victims.end(), r) != victims.end()) continue;
      ASSERT_TRUE(ranks.ended_well(r)) << "round " << round << " rank " << r << ": " << ranks.report(r).text;
      ASSERT_EQ(ranks.report(r).values[kMembers], left) << "round " << round << " rank " << r;
      took.push_back(static_cast<double>(ranks.report(r).at_ns - killed) / 1e6);
    }
  }
  std::sort(took.begin(), took.end());
  std::printf("a gang of the last ones after: median %.2f ms, p99 %.2f ms, most %.2f ms\n",
              took[took.size() / 2], took[took.size() * 99 / 100], took.back());
  EXPECT_LT(took.back(), 5000) << "a busy machine takes longer, but not until a deadline";
}

TEST(HostShrink, ShrinkLeavesLostRanksOutOfEverySurvivorsList) {
  Processes ranks(4, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 4, store);
    std::vector<float> x(10);
    sum(joined, x);
    report.stage = 1;
    if (r == 1 || r == 3)
      for (;;) pause();
    until_failure(report, [&] { sum(joined, x); });
    while (report.turn == 0) usleep(500);  // both are dead by then
    // One knows of one death, the other of both.
    std::vector<int> rest = r == 0 ? std::vector<int>{3, 2, 0} : std::vector<int>{2, 0};
    joined.engine = joined.engine->shrink(rest);
    report.values[kPassedOver] = rest == std::vector<int>{2, 0};
    x.assign(10, 1);
    sum(joined, x);
    report.values[kSum] = static_cast<int64_t>(x[0]);
  });
  for (int r = 0; r < 4; ++r) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGKILL);
  wait_for_failures(ranks, {0, 2});
  ranks.kill(3, SIGKILL);
  for (const int r : {0, 2}) ranks.report(r).turn = 1;
  for (const int r : {0, 2}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).values[kPassedOver], 1) << r;
    EXPECT_EQ(ranks.report(r).values[kSum], 2) << r;
  }
}

}  // namespace
}  // namespace gangway::test
