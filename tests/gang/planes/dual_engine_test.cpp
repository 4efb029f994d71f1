// A data engine that notices nothing, with a control engine that does: what two planes give together.
#include <algorithm>
#include <random>

#include "base/error_of.h"
#include "gang/agreement.h"
#include "gang/gang_matrix.h"
#include "gang/planes/over_engines.h"
#include "gang/planes/two_planes.h"
#include "gang/sum_of.h"

namespace gangway::test {
namespace {

template <typename Body>
void run_two_planes(int size, Body&& body, int64_t timeout_ms = 60'000) {
  GangOptions options = thread_rank_options();
  options.timeout_ms = timeout_ms;
  run_over_engines(
      size,
      [&](const std::shared_ptr<Rank>& rank, const std::shared_ptr<Engine>& below) {
        return two_planes(rank, below, timeout_ms);
      },
      body, options);
}

class DualEngine : public testing::TestWithParam<int> {};

TEST_P(DualEngine, EveryOperationEqualsTheSerialFold) {
  run_two_planes(GetParam(), [](Gang& root) {
    EXPECT_STREQ(root.engine_name(), "unaware");
    EXPECT_EQ(root.shared_memory(), nullptr);
    matrix(root);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DualEngine, testing::Values(2, 3));

TEST(DualEngine, ChildrenHaveTwoPlanesToo) {
  run_two_planes(4, [](Gang& root) {
    const GangPtr half = root.split(root.rank() % 2, root.rank());
    EXPECT_STREQ(half->engine_name(), "unaware");
    std::vector<float> x(100, static_cast<float>(root.rank()));
    half->run_now(Channel::user, sum_of(x));
    EXPECT_EQ(x[99], root.rank() % 2 == 0 ? 2 : 4);
    EXPECT_EQ(half->agreement().all_gather_bytes(Channel::user,
                                                 std::string(1, static_cast<char>('a' + root.rank())))[1],
              root.rank() % 2 == 0 ? "c" : "d");
  });
}

TEST(DualEngine, DifferentCallsAreNamedOnAllRanksBeforeTheDataEngineHasThem) {
  run_two_planes(3, [](Gang& root) {
    std::vector<float> x(10);
    Collective c = sum_of(x);
    if (root.rank() == 1) c.reduce = Reduce::max;
    const Error error = error_of([&] { root.run_now(Channel::user, c); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find(", max)"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(", sum)"), std::string::npos) << error.message();
    EXPECT_EQ(root.traffic().calls, 0u);
    EXPECT_EQ(error_of([&] { root.barrier(); }).code(), Code::mismatch);
  });
}

TEST(DualEngine, DifferentAsynchronousCallsAreNamed) {
  run_two_planes(2, [](Gang& root) {
    std::vector<float> x(10), y(10);
    const WorkPtr first = root.run(Channel::user, sum_of(x));
    Collective c = sum_of(y);
    c.count = root.rank() == 0 ? 10 : 5;
    const WorkPtr second = root.run(Channel::user, c);
    const Error error = error_of([&] { second->wait(Deadline::never()); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("#1 of rank"), std::string::npos) << error.message();
  });
}

TEST(DualEngine, TheEndsOfASendMustAgree) {
  run_two_planes(2, [](Gang& root) {
    std::vector<float> x(10);
    Collective c;
    c.op = root.rank() == 0 ? CollectiveOp::send : CollectiveOp::recv;
    c.in = c.out = x.data();
    c.count = root.rank() == 0 ? 10 : 9;
    c.peer = 1 - root.rank();
    const Error error = error_of([&] {
      root.run_now(Channel::user, c);
      root.barrier();
    });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
  });
}

TEST(DualEngine, TheCountsOfAnExchangeMustAgreeByPairs) {
  run_two_planes(2, [](Gang& root) {
    std::vector<float> x(10), y(10);
    const size_t counts[] = {1, 1, 1, root.rank() == 0 ? size_t{2} : size_t{1}};
    Collective c;
    c.op = CollectiveOp::all_to_all;
    c.in = x.data();
    c.out = y.data();
    c.counts = counts;
    const Error error = error_of([&] {
      root.run_now(Channel::user, c);
      root.barrier();
    });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
  });
}

TEST(DualEngine, ARankThatDoesNotComeIsATimeoutThatNamesIt) {
  run_two_planes(
      3,
      [](Gang& root) {
        std::vector<float> x(10);
        if (root.rank() == 2) {
          while (!root.error()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return;
        }
        const Error error = error_of([&] { root.run_now(Channel::user, sum_of(x)); });
        EXPECT_EQ(error.code(), Code::timeout) << error.message();
        EXPECT_NE(error.message().find("rank 2"), std::string::npos) << error.message();
      },
      300);
}

TEST(DualEngine, AWaitThatRunsOutIsHarmless) {
  run_two_planes(2, [](Gang& root) {
    std::vector<float> first(1, 1), x(10, 1);
    root.run_now(Channel::user, sum_of(first));  // opens the channel, which waits for all ranks
    if (root.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const WorkPtr work = root.run(Channel::user, sum_of(x));
    const Error early = error_of([&] { work->wait(Deadline::after_ms(5)); });
    if (root.rank() == 0) {
      EXPECT_EQ(early.code(), Code::not_ready) << early.message();
    }
    work->wait(Deadline::never());
    EXPECT_EQ(x[0], 2);
    root.barrier();
  });
}

TEST(DualEngine, AnAbortReachesTheOthersInBothPlanes) {
  run_two_planes(2, [](Gang& root) {
    std::vector<float> x(10);
    if (root.rank() == 1) return root.abort("enough");
    EXPECT_EQ(error_of([&] { root.run_now(Channel::user, sum_of(x)); }).code(), Code::aborted);
  });
}

constexpr int kCalls = 60;
constexpr Channel kUsed[] = {Channel::user, Channel::fsdp_gather, Channel::fsdp_reduce};

// The same calls on every rank, each of which is late and looks at its works at times of its own.
void run_delayed(Gang& root, unsigned seed) {
  std::mt19937 program(seed), delay(seed * 100 + static_cast<unsigned>(root.rank()));
  std::vector<std::vector<float>> data(kCalls, std::vector<float>(50, 1));
  std::vector<WorkPtr> works;
  for (int i = 0; i < kCalls; ++i) {
    Collective c = sum_of(data[static_cast<size_t>(i)]);
    if (program() % 2 == 0) c.op = CollectiveOp::broadcast, c.reduce = Reduce::none, c.peer = 0;
    works.push_back(root.run(kUsed[program() % 3], c));
    if (delay() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delay() % 2000));
    if (delay() % 4 == 0) works[delay() % works.size()]->poll();
  }
  std::shuffle(works.begin(), works.end(), delay);
  for (const WorkPtr& work : works) work->wait_input(Deadline::never());
  root.barrier();
}

std::vector<std::vector<Launch>> launches_of(int ranks, unsigned seed, bool aborts_in_flight) {
  std::vector<std::vector<Launch>> launches(static_cast<size_t>(ranks));
  run_over_engines(
      ranks,
      [&](const std::shared_ptr<Rank>& rank, const std::shared_ptr<Engine>& below) {
        const auto r = static_cast<unsigned>(below->rank());
        return two_planes(rank, std::make_shared<SeemsLate>(below, 50 * seed + r), 60'000, &launches[r],
                          aborts_in_flight);
      },
      [&](Gang& root) { run_delayed(root, seed); });
  return launches;
}

std::vector<Launch> on_channel(const std::vector<Launch>& launches, Channel channel) {
  std::vector<Launch> some;
  for (const Launch& launch : launches)
    if (launch.channel == channel) some.push_back(launch);
  return some;
}

TEST(DualEngine, LaunchesOfAChannelComeInOneOrderOnAllRanksWhicheverRankIsLate) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto launches = launches_of(3, seed, /*aborts_in_flight=*/false);
    for (const auto& own : launches) {
      EXPECT_EQ(own.size(), size_t{kCalls});
      for (const Channel channel : kUsed)
        EXPECT_EQ(on_channel(own, channel), on_channel(launches[0], channel));
    }
  }
}

TEST(DualEngine, LaunchesThatCanBeAbortedComeInTheProgramsOrderOverAllChannels) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto launches = launches_of(3, seed, /*aborts_in_flight=*/true);
    for (const auto& own : launches) {
      EXPECT_EQ(own.size(), size_t{kCalls});
      EXPECT_EQ(own, launches[0]);
    }
  }
}

}  // namespace
}  // namespace gangway::test
