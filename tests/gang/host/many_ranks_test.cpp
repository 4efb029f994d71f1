// Many more ranks than cores: what a rank does for each other rank must not be done again for each wake-up.
#include <chrono>

#include "base/sanitized.h"
#include "gang/host/joined.h"
#include "gang/host/threads.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

EngineOptions large_arena() {
  EngineOptions options = small_arena();
  options.arena_bytes = 0;  // the default: the board of so many ranks fits no small slice
  return options;
}

TEST(HostManyRanks, TheFirstCallsOfTwoHundredThreadsTakeSeconds) {
#ifdef GANGWAY_TEST_SANITIZED
  GTEST_SKIP() << "sanitizers reserve too little address space";
#endif
  constexpr int kRanks = 200;
  ThreadRanks ranks(kRanks, large_arena());
  const auto start = std::chrono::steady_clock::now();
  ranks.run([&](int r, Engine& engine) {
    for (int i = 0; i < 3; ++i) {
      float x = 1;
      now(engine, sum_in_place(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
      if (x != kRanks) fail(Code::internal, "the sum is ", x);
    }
  });
  EXPECT_LT(seconds_since(start), 20);
}

TEST(HostManyRanks, AHundredAndTwentyEightProcessesStartInSeconds) {
#ifdef GANGWAY_TEST_SANITIZED
  GTEST_SKIP() << "sanitizers reserve too little address space";
#endif
  constexpr int kRanks = 128;
  const auto start = std::chrono::steady_clock::now();
  Processes ranks(kRanks, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    Joined joined(r, kRanks, store, large_arena());
    std::vector<float> x{1};
    sum(joined, x);
    if (x[0] != static_cast<float>(kRanks)) fail(Code::internal, "the sum is ", x[0]);
    joined.engine->shutdown(Deadline::after_ms(60'000));
  });
  ranks.expect_all_well();
  EXPECT_LT(seconds_since(start), 30);
}

}  // namespace
}  // namespace gangway::test
