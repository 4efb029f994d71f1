// How errors name the ranks of a sub-gang, and whom they blame: ranks as threads, and as processes that stop.
#include "base/expect_error.h"
#include "gang/host/joined.h"
#include "gang/host/threads.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

constexpr int64_t kShortMs = 1500;

Error error_of_sum(Engine& engine, Rank& rank) {
  float x = 1;
  return error_of([&] { now(engine, sum_in_place(&x, 1), rank.device().stream()); });
}

TEST(HostNames, ATimeoutInASubGangNamesItsLabelTheRankAndTheGlobalRank) {
  EngineOptions options = small_arena();
  options.timeout_ms = 200;
  ThreadRanks ranks(4, options);
  Meeting over(4);
  ranks.run([&](int r, Engine& root) {
    const auto tp = root.create(r % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, "gang.tp");
    if (r == 1) {
      const Error error = error_of_sum(*tp, *ranks.ranks[1]);
      EXPECT_EQ(error.code(), Code::timeout);
      EXPECT_EQ(error.message(), "gang.tp.all_reduce #0: rank 1 (global rank 3) did not come within 200 ms");
      EXPECT_EQ(error.gang, "gang.tp");
    }
    over.come();
    if (r != 3) return;
    EXPECT_EQ(tp->error()->message(),
              "gang.tp.all_reduce #0: rank 1 (global rank 3) did not come within 200 ms");
  });
}

TEST(HostNames, AMismatchInASubGangNamesBothGlobalRanks) {
  ThreadRanks ranks(4);
  ranks.run([&](int r, Engine& root) {
    const auto tp = root.create(r < 2 ? std::vector<int>{0, 1} : std::vector<int>{3, 2}, "gang.tp");
    if (r < 2) return;
    float x[2] = {};
    const Error error = error_of([&] {
      now(*tp, sum_in_place(x, r == 2 ? 1 : 2), ranks.ranks[static_cast<size_t>(r)]->device().stream());
    });
    EXPECT_EQ(error.code(), Code::mismatch);
    for (const char* const part : {"rank 0 (global rank 3)", "rank 1 (global rank 2)", "gang.tp.all_reduce"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  });
}

TEST(HostNames, AnAbortInASubGangNamesTheGlobalRank) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& root) {
    const auto dp = root.create(r == 0 ? std::vector<int>{0} : std::vector<int>{2, 1}, "gang.dp");
    if (r == 1) dp->abort(Error(Code::aborted, "enough"));
    if (r != 2) return;
    const Error error = error_of([&] {
      for (;;) now(*dp, Collective{}, ranks.ranks[2]->device().stream());
    });
    EXPECT_EQ(error.message(), "gang.dp: aborted by rank 1 (global rank 1): enough");
  });
}

EngineOptions with_timeout(int64_t ms) {
  EngineOptions options = small_arena();
  options.timeout_ms = ms;
  return options;
}

// Rank 3 is stopped. Rank 2 waits for it in gang tp, and rank 0 waits for rank 2 in gang dp: rank 2 is well.
TEST(HostNames, ATimeoutTellsForWhomTheLateRankWaitsAndThatThatOneIsStopped) {
  Processes ranks(4, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 4, store, with_timeout(r == 0 ? kShortMs : 60'000));
    const auto tp = joined.engine->create(r < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, "gang.tp");
    const auto dp =
        joined.engine->create(r % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, "gang.dp");
    report.stage = 1;
    if (r == 3) raise(SIGSTOP);
    if (r == 0) report.say(error_of_sum(*dp, *joined.rank).message());
    if (r == 2) error_of_sum(*tp, *joined.rank);
    report.stage = 2;
    stay_until_released(report);
  });
  ranks.wait_for_stage(0, 2);
  const std::string said = ranks.report(0).text;
  ranks.kill(3, SIGCONT);
  for (int r = 0; r < 4; ++r) ranks.report(r).may_end = 1;
  EXPECT_EQ(said.rfind("gang.dp.all_reduce #0: rank 1 (global rank 2) did not come within 1500 ms; "
                       "rank 1 (global rank 2) waits in gang.tp.all_reduce #0 for rank 1 (global rank 3); "
                       "rank 1 (global rank 3) has shown no sign of life for ",
                       0),
            0U)
      << said;
  EXPECT_NE(said.find("is it stopped?"), std::string::npos) << said;
}

// All ranks have begun the call, and the last one is stopped in its middle: the second one has not ended
// either.
TEST(HostNames, ATimeoutInMidCallBlamesTheStoppedRankAlone) {
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store, with_timeout(r == 0 ? kShortMs : 60'000));
    std::vector<float> x(5'000'000, 1);
    const Collective c = sum_in_place(x.data(), x.size());
    const WorkPtr work = joined.engine->run(Channel::user, {&c, 1}, joined.stream());
    report.stage = 1;
    if (r == 2) raise(SIGSTOP);
    const Error error = error_of([&] { work->wait_input(Deadline::never()); });
    report.say(error.message());
    report.stage = 2;
    stay_until_released(report);
  });
  ranks.wait_for_stage(0, 2);
  const std::string said = ranks.report(0).text;
  ranks.kill(2, SIGCONT);
  for (int r = 0; r < 3; ++r) ranks.report(r).may_end = 1;
  EXPECT_EQ(said.rfind("gang.all_reduce #0: rank 2 did not come within 1500 ms; rank 2 has shown no sign", 0),
            0U)
      << said;
}

}  // namespace
}  // namespace gangway::test
