// The host engine with ranks as processes: the same results as with threads, the arena, leaving in order.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "gang/host_overlap.h"
#include "gang/host_reference.h"
#include "gang/joined.h"

namespace gangway::test {
namespace {

// One call, tensors inside the arena or not; what this rank got.
Bytes one_call(Joined& joined, Collective c, bool inside) {
  const int r = joined.engine->rank(), size = joined.engine->size();
  const Bytes in = sample_input(c, r, size);
  const size_t out_bytes = out_count(c, r, size) * item_bytes(c.dtype);
  const auto allocator = inside ? joined.engine->allocator() : joined.rank->device().allocator();
  const auto a = Buffer::allocate(allocator, in.size());
  const auto b = Buffer::allocate(allocator, out_bytes);
  if (!in.empty()) std::memcpy(a->data(), in.data(), in.size());
  c.in = a->data();
  c.out = b->data();
  now(*joined.engine, c, joined.stream());
  Bytes out(out_bytes);
  if (out_bytes != 0) std::memcpy(out.data(), b->data(), out_bytes);
  return out;
}

class HostProcesses : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HostProcesses, testing::Values(1, 2, 3, 4, 8));

TEST_P(HostProcesses, EveryOperationEqualsTheReference) {
  const int size = GetParam();
  Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    Joined joined(r, size, store);
    for (const CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather,
                                  CollectiveOp::reduce_scatter, CollectiveOp::broadcast, CollectiveOp::reduce,
                                  CollectiveOp::gather, CollectiveOp::scatter, CollectiveOp::all_to_all})
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{100003}})
        for (const bool inside : {false, true}) {
          Collective c;
          c.op = op;
          c.count = count;
          const bool folds = op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter ||
                             op == CollectiveOp::reduce;
          c.reduce = folds ? Reduce::sum : Reduce::none;
          c.peer = op == CollectiveOp::broadcast || op == CollectiveOp::reduce ||
                           op == CollectiveOp::gather || op == CollectiveOp::scatter
                       ? size - 1
                       : -1;
          std::vector<Bytes> in;
          for (int i = 0; i < size; ++i) in.push_back(sample_input(c, i, size));
          const bool gets = out_count(c, r, size) != 0;
          const Bytes out = one_call(joined, c, inside);
          if (gets && out != reference(c, in, r))
            fail(Code::internal, name(op), " of ", count, inside ? " inside" : " outside", " is wrong");
        }
    joined.engine->shutdown(Deadline::after_ms(10'000));
  });
  ranks.expect_all_well();
}

TEST_P(HostProcesses, CallsThatShareMemoryRunInCallOrder) {
  const int size = GetParam();
  Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    Joined joined(r, size, store);
    Device& device = joined.rank->device();
    for (const bool inside : {false, true, r % 2 == 0})
      OverlappingCalls(*joined.engine, device.stream(),
                       inside ? joined.engine->allocator() : device.allocator())
          .check_all();
    joined.engine->shutdown(Deadline::after_ms(60'000));
  });
  ranks.expect_all_well();
}

// --- what peers see of a rank that dies

void mixed_call(Joined& joined, std::vector<float>& x, int i) {
  Collective c;
  c.in = c.out = x.data();
  c.reduce = Reduce::sum;
  switch (i % 4) {
    case 0:
      c.op = CollectiveOp::all_reduce, c.count = 1;
      break;
    case 1:
      c.op = CollectiveOp::all_reduce, c.count = x.size();
      break;
    case 2:
      c.op = CollectiveOp::barrier, c.reduce = Reduce::none;
      break;
    default:
      c.op = CollectiveOp::broadcast, c.reduce = Reduce::none, c.peer = i % joined.engine->size(),
      c.count = 3000;
      break;
  }
  now(*joined.engine, c, joined.stream());
}

TEST(HostKill, TwoHundredKillsAtRandomPointsNameTheRightRank) {
  uint64_t seed = 12345;
  const auto random = [&](uint64_t below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
  };
  std::vector<double> took;
  for (int round = 0; round < 200; ++round) {
    const int size = 2 + static_cast<int>(random(3));
    const int victim = static_cast<int>(random(static_cast<uint64_t>(size)));
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      Joined joined(r, size, store);
      std::vector<float> x(100'000);
      int i = 0;
      until_failure(report, [&] {
        mixed_call(joined, x, i++);
        report.stage = i;
      });
    });
    while (ranks.report(victim).stage < static_cast<int>(random(50)) + 1) usleep(100);
    usleep(static_cast<useconds_t>(random(2000)));
    const int64_t killed = now_ns();
    ranks.kill(victim, SIGKILL);
    ranks.join();
    for (int r = 0; r < size; ++r) {
      if (r == victim) continue;
      ASSERT_TRUE(ranks.ended_well(r)) << "round " << round << " rank " << r;
      Report& report = ranks.report(r);
      ASSERT_EQ(report.number[1], static_cast<int64_t>(Code::peer_lost)) << report.text;
      ASSERT_EQ(report.number[2], victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", victim, " (host ").c_str()), nullptr) << report.text;
      took.push_back(static_cast<double>(report.number[0] - killed) / 1e6);
    }
    if (round == 0) std::printf("first report: %s\n", ranks.report(victim == 0 ? 1 : 0).text);
  }
  std::sort(took.begin(), took.end());
  std::printf("survivors told after: median %.2f ms, p99 %.2f ms, most %.2f ms\n", took[took.size() / 2],
              took[took.size() * 99 / 100], took.back());
}

TEST(HostKill, ARankThatExitsWithoutShutdownIsReported) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store);
    std::vector<float> x(10);
    mixed_call(joined, x, 0);
    if (r == 2) _exit(7);
    until_failure(report, [&] { mixed_call(joined, x, 0); });
    stay(report);
  });
  let_go_when_told(ranks, {0, 1});
  ranks.join();
  for (const int r : {0, 1}) {
    EXPECT_EQ(ranks.report(r).number[1], static_cast<int64_t>(Code::peer_lost));
    EXPECT_EQ(ranks.report(r).number[2], 2);
    EXPECT_NE(std::strstr(ranks.report(r).text, "gang.all_reduce #1: rank 2 (host "), nullptr)
        << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text, "left without shutdown"), nullptr) << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text, "exit code 7; ranks 0, 1 are alive"), nullptr)
        << ranks.report(r).text;
  }
}

TEST(HostKill, AComputingSurvivorHearsOfItAtItsNextCallWhichDoesNotStart) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    const std::vector<int> both{0, 1};
    const auto other = joined.engine->create(both);
    std::vector<float> x(10);
    mixed_call(joined, x, 0);
    report.stage = 1;
    if (r == 1)
      for (;;) pause();
    while (!other->error()) usleep(500);  // the loss is on the arena now; the other engine has not looked
    report.number[3] = static_cast<int64_t>(joined.engine->traffic().calls);
    until_failure(report, [&] { mixed_call(joined, x, 0); });
    report.number[4] = static_cast<int64_t>(joined.engine->traffic().calls);
  });
  while (ranks.report(1).stage != 1 || ranks.report(0).stage != 1) usleep(500);
  ranks.kill(1, SIGKILL);
  ranks.join();
  Report& report = ranks.report(0);
  EXPECT_EQ(report.number[1], static_cast<int64_t>(Code::peer_lost)) << report.text;
  EXPECT_NE(std::strstr(report.text, "gang.all_reduce #1: rank 1 (host "), nullptr) << report.text;
  EXPECT_NE(std::strstr(report.text, "killed by signal 9; rank 0 is alive"), nullptr) << report.text;
  EXPECT_EQ(report.number[4], report.number[3]);
}

TEST(HostKill, AStoppedRankIsLostWithinTheLivenessLimit) {
  EngineOptions options = small_arena();
  options.liveness_ms = 300;
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store, options);
    std::vector<float> x(10);
    int i = 0;
    until_failure(report, [&] {
      mixed_call(joined, x, 0);
      report.stage = ++i;
    });
    stay(report);
  });
  while (ranks.report(1).stage < 10) usleep(500);
  usleep(400'000);
  const int64_t stopped = now_ns();
  ranks.kill(1, SIGSTOP);
  let_go_when_told(ranks, {0, 2});
  for (const int r : {0, 2}) {
    EXPECT_EQ(ranks.report(r).number[2], 1) << ranks.report(r).text;
    EXPECT_LT(ranks.report(r).number[0] - stopped, 1'300'000'000);
    EXPECT_NE(std::strstr(ranks.report(r).text, "no heartbeat for 300 ms; ranks 0, 2 are alive"), nullptr)
        << ranks.report(r).text;
  }
  ranks.kill(1, SIGKILL);
}

TEST(HostKill, ALostRankBreaksEveryGangThatHoldsItAndNoOther) {
  Processes ranks(4, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 4, store);
    const std::vector<int> low{0, 1}, high{2, 3};
    const auto mine = joined.engine->create(r < 2 ? low : high);
    Joined pair = joined;
    pair.engine = mine;
    std::vector<float> x(10);
    mixed_call(pair, x, 0);
    report.stage = 1;
    if (r == 3)
      for (;;) pause();
    until_failure(report, [&] {
      if (r == 2) mixed_call(pair, x, 0);
      mixed_call(joined, x, 0);
    });
    if (r < 2) {  // the pair of the living works on
      x.assign(10, 1);
      mixed_call(pair, x, 0);
      report.number[4] = x[0] == 2;
      const std::vector<int> rest{0, 1, 2};
      Joined less = joined;
      less.engine = joined.engine->shrink(rest);
      x.assign(10, 1);
      mixed_call(less, x, 0);
      report.number[5] = static_cast<int64_t>(x[0]);
    } else {
      report.number[6] = static_cast<int64_t>(mine->error()->code());
      // The root may have been whole for this rank so far.
      try {
        mixed_call(joined, x, 0);
      } catch (const Error&) {
      }
      const std::vector<int> rest{0, 1, 2};
      Joined less = joined;
      less.engine = joined.engine->shrink(rest);
      x.assign(10, 1);
      mixed_call(less, x, 0);
      report.number[5] = static_cast<int64_t>(x[0]);
    }
  });
  while (ranks.report(3).stage != 1 || ranks.report(2).stage != 1) usleep(500);
  ranks.kill(3, SIGKILL);
  ranks.join();
  for (const int r : {0, 1, 2}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).number[1], static_cast<int64_t>(Code::peer_lost)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).number[5], 3) << r;
  }
  EXPECT_EQ(ranks.report(0).number[4], 1);
  EXPECT_EQ(ranks.report(2).number[6], static_cast<int64_t>(Code::peer_lost));
}

TEST(HostKill, ASharedRegionIsFreedWhenTheLivingHaveLetGoOfIt) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  constexpr size_t kBytes = 60 << 20;  // one fits, two do not
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store, options);
    std::optional<SharedRegion> region(joined.engine->allocate_shared(kBytes));
    std::vector<float> x(10);
    mixed_call(joined, x, 0);
    report.stage = 1;
    if (r == 1)
      for (;;) pause();
    until_failure(report, [&] { mixed_call(joined, x, 0); });
    const std::vector<int> rest{0, 2};
    joined.engine = joined.engine->shrink(rest);
    region.reset();
    mixed_call(joined, x, 0);  // both have let go
    region.emplace(joined.engine->allocate_shared(kBytes));
    joined.engine->shutdown(Deadline::after_ms(60'000));
  });
  for (const int r : {0, 1, 2})
    while (ranks.report(r).stage != 1 && ranks.runs(r)) usleep(500);
  ranks.kill(1, SIGKILL);
  ranks.join();
  for (const int r : {0, 2}) EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
}

TEST(HostFork, EveryCallInAForkedChildIsRefused) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    std::vector<float> x(10);
    const auto block = Buffer::allocate(joined.engine->allocator(), 1000);
    mixed_call(joined, x, 0);
    const pid_t child = fork();
    if (child == 0) {
      int code = 0;
      try {
        mixed_call(joined, x, 0);
      } catch (const Error& error) {
        code = error.code() == Code::forked ? 42 : 1;
      }
      joined.engine.reset();  // touches nothing
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    report.number[0] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    mixed_call(joined, x, 0);
    joined.engine->shutdown(Deadline::never());
  });
  ranks.expect_all_well();
  EXPECT_EQ(ranks.report(0).number[0], 42);
  EXPECT_EQ(ranks.report(1).number[0], 42);
}

}  // namespace
}  // namespace gangway::test
