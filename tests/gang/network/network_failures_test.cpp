// The engine between hosts, with ranks as processes of one host: how calls end when a rank does something
// else, stops or dies.
#include <signal.h>
#include <unistd.h>

#include "gang/gang_matrix.h"
#include "gang/network/mismatches.h"
#include "gang/network/network_ranks.h"

namespace gangway::test {
namespace {

TEST(Network, AKilledRankIsNamedAtOnceByEveryWaiter) {
  Processes ranks(3, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = make_gang(rank, 3, store);
    const GangPtr child = root->duplicate();
    sum(*root, 1);
    report.stage = 1;
    if (rank == 1) pause();
    report_failure(report, *child, [&] { sum(*child, 1); });
    EXPECT_TRUE(root->error()) << "a lost rank breaks every gang that holds it";
  });
  for (int r = 0; r < 3; ++r) ranks.wait_for_stage(r, 1);
  usleep(50'000);
  const int64_t at = now_ns();
  ranks.kill(1, SIGKILL);
  for (const int r : {0, 2}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(code_of(ranks.report(r)), Code::peer_lost) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).peer, 1);
    EXPECT_LT(ranks.report(r).at_ns - at, 1'000'000'000);
  }
}

TEST(Network, ARankThatDiesInALongCallEndsIt) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = make_gang(rank, 2, store);
    std::vector<float> x(4 << 20, 1);
    report.stage = 1;
    report_failure(report, *root, [&] {
      for (;;) {
        root->run_now(Channel::user, sum_of(x));
        x.assign(x.size(), 1);
        ++report.stage;
      }
    });
  });
  ranks.wait_for_stage(0, 3);
  ranks.kill(1, SIGKILL);
  EXPECT_TRUE(ranks.ended_well(0)) << ranks.report(0).text;
  EXPECT_EQ(code_of(ranks.report(0)), Code::peer_lost) << ranks.report(0).text;
}

// The interrupted call may hold what the end of the process would wait for.
TEST(Network, ARankThatExitsInASignalHandlerInACallIsLostToItsPeer) {
  for (int round = 0; round < 4; ++round) {
    Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
      const GangPtr root = make_gang(rank, 2, store);
      signal(SIGUSR1, [](int) { exit(0); });
      report_failure(report, *root, [&] {
        for (;;) {
          sum(*root, 1);
          ++report.stage;
        }
      });
    });
    ranks.wait_for_stage(0, 100 + round);
    const int64_t at = now_ns();
    ranks.kill(1, SIGUSR1);
    EXPECT_TRUE(ranks.ended_well(0)) << ranks.report(0).text;
    EXPECT_EQ(code_of(ranks.report(0)), Code::peer_lost) << ranks.report(0).text;
    EXPECT_LT(ranks.report(0).at_ns - at, 5'000'000'000);
  }
}

TEST(Network, DifferentCallsAreAMismatchOnEveryRank) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = make_gang(rank, 2, store);
    std::vector<float> x(rank == 0 ? 3 : 4);
    report_failure(report, *root, [&] { root->run_now(Channel::user, sum_of(x)); });
  });
  for (const int r : {0, 1}) {
    EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
    EXPECT_EQ(code_of(ranks.report(r)), Code::mismatch) << ranks.report(r).text;
    EXPECT_NE(std::string(ranks.report(r).text).find("(3 f32, sum)"), std::string::npos)
        << ranks.report(r).text;
  }
}

TEST(Network, EveryKindOfCallsThatDifferIsToldOnEveryRank) { run_processes(3, every_mismatch_is_told); }

TEST(Network, AMissingRankIsNamedAtTheDeadline) {
  Processes ranks(3, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangOptions options = network_options(rank, 3, store);
    options.timeout_ms = 3000;
    const GangPtr root = Gang::create(options);
    sum(*root, 1);
    if (rank == 2) {
      report.stage = 1;
      while (!root->error()) usleep(10'000);  // the others tell it
      return;
    }
    report_failure(report, *root, [&] { sum(*root, 1); });
  });
  ranks.expect_all_well();
  bool is_named = false;
  for (const int r : {0, 1}) {
    EXPECT_EQ(code_of(ranks.report(r)), Code::timeout) << ranks.report(r).text;
    is_named = is_named || std::string(ranks.report(r).text).find("all_reduce #1: rank 2 did not come") !=
                               std::string::npos;
  }
  EXPECT_TRUE(is_named) << ranks.report(0).text;
}

// The wait of a call that is held must name who is late for the one that holds it.
TEST(Network, ACallThatWaitsForMemoryNamesTheRankThatIsLate) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangOptions options = network_options(rank, 2, store);
    options.timeout_ms = 1000;
    const GangPtr root = Gang::create(options);
    if (rank == 1) {
      while (!root->error()) usleep(10'000);
      return;
    }
    std::vector<float> x(10, 1);
    const WorkPtr first = root->run(Channel::user, sum_of(x)), second = root->run(Channel::user, sum_of(x));
    report_failure(report, *root, [&] { second->wait(Deadline::never()); });
  });
  ranks.expect_all_well();
  EXPECT_EQ(code_of(ranks.report(0)), Code::timeout);
  EXPECT_NE(std::string(ranks.report(0).text).find("all_reduce #0: rank 1 did not come"), std::string::npos)
      << ranks.report(0).text;
}

TEST(Network, AnAbortWakesThePeers) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = make_gang(rank, 2, store);
    if (rank == 0) return root->abort("enough");
    report_failure(report, *root, [&] { sum(*root, 1); });
  });
  EXPECT_TRUE(ranks.ended_well(1));
  EXPECT_EQ(code_of(ranks.report(1)), Code::aborted) << ranks.report(1).text;
  EXPECT_NE(std::string(ranks.report(1).text).find("enough"), std::string::npos) << ranks.report(1).text;
}

TEST(Network, ARankThatLeavesIsNamed) {
  Processes ranks(2, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangPtr root = make_gang(rank, 2, store);
    sum(*root, 1);
    if (rank == 0) {
      root.reset();
      report.stage = 1;
      while (report.may_end == 0) usleep(1000);
      return;
    }
    report_failure(report, *root, [&] { sum(*root, 1); });
  });
  ranks.wait_until(1, [](const Report& report) { return report.code != 0; });
  ranks.report(0).may_end = 1;
  EXPECT_EQ(code_of(ranks.report(1)), Code::peer_lost) << ranks.report(1).text;
  EXPECT_TRUE(ranks.ended_well(0));
}

TEST(Network, AStoppedRankIsLostWhereLivenessAsksOnly) {
  for (const int64_t liveness_ms : {0, 500}) {
    Processes ranks(2, [&](int rank, const std::shared_ptr<Store>& store, Report& report) {
      GangOptions options = network_options(rank, 2, store);
      options.liveness_ms = liveness_ms;
      const GangPtr root = Gang::create(options);
      std::vector<float> x(1 << 20, 1);
      report.stage = 1;
      report_failure(report, *root, [&] {
        while (report.turn == 0) root->run_now(Channel::user, sum_of(x));
        root->abort("the test is over");
        sum(*root, 1);
      });
    });
    for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
    ranks.kill(1, SIGSTOP);
    usleep(2'500'000);
    EXPECT_EQ(ranks.report(0).code != 0, liveness_ms != 0) << ranks.report(0).text;
    if (liveness_ms != 0) {
      EXPECT_EQ(code_of(ranks.report(0)), Code::peer_lost) << ranks.report(0).text;
    }
    for (const int r : {0, 1}) ranks.report(r).turn = 1;
    ranks.kill(1, SIGCONT);
    EXPECT_TRUE(ranks.ended_well(0)) << ranks.report(0).text;
  }
}

TEST(Network, SurvivorsGoOnInASmallerGang) {
  Processes ranks(3, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = make_gang(rank, 3, store);
    sum(*root, 1);
    report.stage = 1;
    if (rank == 1)
      for (;;) pause();
    report_failure(report, *root, [&] { sum(*root, 1); });
    const int survivors[] = {0, 1, 2};  // one of them is left out
    const GangPtr smaller = root->shrink(survivors);
    EXPECT_EQ(smaller->size(), 2);
    EXPECT_EQ(sum(*smaller, 1), 2);
    small_matrix(*smaller);
    smaller->shutdown(60'000);
  });
  for (int r = 0; r < 3; ++r) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGKILL);
  for (const int r : {0, 2}) EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
}

// The survivors see the loss at different times. The first one to see it tells the other.
TEST(Network, ARankThatIsLostWhileTheGangShrinksIsLeftOut) {
  Processes ranks(3, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangOptions options = network_options(rank, 3, store);
    options.liveness_ms = 500;
    const GangPtr root = Gang::create(options);
    sum(*root, 1);
    report.stage = 1;
    if (rank == 1)
      for (;;) pause();
    while (rank == 0 && report.turn == 0) usleep(1000);
    if (rank == 0) root->abort("the test wants a smaller gang");
    report_failure(report, *root, [&] { sum(*root, 1); });
    report.stage = 2;
    const int survivors[] = {0, 1, 2};
    const GangPtr smaller = root->shrink(survivors);
    EXPECT_EQ(smaller->size(), 2);
    EXPECT_EQ(sum(*smaller, 1), 2);
    smaller->shutdown(60'000);
    report.stage = 3;
  });
  for (int r = 0; r < 3; ++r) ranks.wait_for_stage(r, 1);
  ranks.report(0).turn = 1;
  for (const int r : {0, 2}) ranks.wait_for_stage(r, 2);
  usleep(100'000);
  ranks.kill(1, SIGSTOP);
  for (const int r : {0, 2}) ranks.wait_for_stage(r, 3);
  ranks.kill(1, SIGKILL);
  for (const int r : {0, 2}) EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
}

TEST(Network, ARankThatCannotStartTellsTheOthers) {
  Processes ranks(3, [](int rank, const std::shared_ptr<Store>& store, Report& report) {
    GangOptions options = network_options(rank, 3, store);
    options.liveness_ms = rank == 2 ? 700 : 800;
    try {
      Gang::create(options);
    } catch (const Error& error) {
      report.say(error.message());
      report.code = static_cast<int64_t>(error.code());
    }
  });
  ranks.expect_all_well();
  for (const int r : {0, 1, 2})
    EXPECT_EQ(code_of(ranks.report(r)), Code::invalid_argument) << ranks.report(r).text;
}

}  // namespace
}  // namespace gangway::test
