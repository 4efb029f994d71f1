// Those that go on after a break, in a smaller gang; ranks as threads.
#include <atomic>
#include <chrono>

#include "base/expect_error.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

TEST(HostSurvivors, TheSurvivorsOfABrokenGangGoOn) {
  ThreadRanks ranks(4);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 1) {
      engine.abort(Error(Code::aborted, "rank 1 is out"));
      return;
    }
    float x = 1;
    EXPECT_EQ(error_of([&] { now(engine, sum_in_place(&x, 1), stream); }).code(), Code::aborted);
    std::vector<int> survivors{3, 0, 2};
    const auto rest = engine.shrink(survivors);
    EXPECT_EQ(rest->size(), 3);
    EXPECT_EQ(rest->rank(), r == 3 ? 0 : r == 0 ? 1 : 2);
    x = static_cast<float>(r);
    now(*rest, sum_in_place(&x, 1), stream);
    EXPECT_EQ(x, 5);
    rest->shutdown(Deadline::never());
  });
}

TEST(HostSurvivors, AShrinkThatIsTriedAgainLeadsToTheBoardThatOthersHaveTaken) {
  EngineOptions options = small_arena();
  options.timeout_ms = 2000;
  ThreadRanks ranks(3, options);
  Meeting two(2);
  ranks.run([&](int r, Engine& engine) {
    if (r == 1) return engine.abort(Error(Code::aborted, "rank 1 is out"));
    std::vector<int> survivors{0, 2};
    float x = 1;
    EXPECT_EQ(error_of([&] {
                now(engine, sum_in_place(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
              }).code(),
              Code::aborted);
    std::shared_ptr<Engine> rest;
    if (r == 0) {
      EXPECT_EQ(error_of([&] { engine.shrink(survivors); }).message(),
                "gang.shrink: rank 2 did not come within 2000 ms");
      two.come();
      two.come();
      rest = engine.shrink(survivors);
    } else {
      two.come();
      rest = engine.shrink(survivors);
      two.come();
    }
    const auto sums = [&](Engine& gang) {
      x = 1;
      now(gang, sum_in_place(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
      EXPECT_EQ(x, 2);
    };
    two.come();
    sums(*rest);
    two.come();
    rest->abort(Error(Code::aborted, "once more"));
    rest.reset();
    sums(*engine.shrink(survivors));  // a board that all have taken is not offered again
  });
}

TEST(HostSurvivors, DifferingListsOfSurvivorsAreReportedToAllWithBothLists) {
  EngineOptions options = small_arena();
  ThreadRanks ranks(4, options);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 1) return engine.abort(Error(Code::aborted, "rank 1 is out"));
    float x = 1;
    EXPECT_EQ(error_of([&] { now(engine, sum_in_place(&x, 1), stream); }).code(), Code::aborted);
    if (r == 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others have been told by then
    std::vector<int> survivors = r == 3 ? std::vector<int>{0, 3} : std::vector<int>{0, 2, 3};
    const auto begin = std::chrono::steady_clock::now();
    const Error error = error_of([&] { engine.shrink(survivors); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    for (const char* const words : {"rank 3", "ranks 0, 3", "ranks 0, 2, 3"})
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "not by the deadline";
  });
}

TEST(HostSurvivors, ARankThatLeavesWhileTheOthersShrinkIsLeftOut) {
  for (int round = 0; round < 20; ++round) {
    ThreadRanks ranks(5);
    std::atomic<int> said{0};
    ranks.run([&](int r, Engine& engine) {
      const size_t at = static_cast<size_t>(r);
      Stream& stream = ranks.ranks[at]->device().stream();
      if (r == 1) return engine.abort(Error(Code::aborted, "rank 1 is out"));
      float x = 1;
      EXPECT_EQ(error_of([&] { now(engine, sum_in_place(&x, 1), stream); }).code(), Code::aborted);
      if (r == 3) {  // it does not ask, while the others wait for it
        while (said.load() < round % 4) std::this_thread::yield();
        ranks.engines[at].reset();
        return;
      }
      ++said;
      std::vector<int> survivors{0, 2, 3, 4};
      const auto rest = engine.shrink(survivors);
      EXPECT_EQ(survivors, (std::vector<int>{0, 2, 4}));
      x = 1;
      now(*rest, sum_in_place(&x, 1), stream);
      EXPECT_EQ(x, 3);
      rest->shutdown(Deadline::after_ms(60'000));
    });
  }
}

}  // namespace
}  // namespace gangway::test
