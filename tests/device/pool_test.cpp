#include "device/cpu/pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/sanitized.h"

namespace gangway::cpu {
namespace {

TEST(Pool, EveryItemIsVisitedOnceForAnyCountAndThreads) {
  for (int threads : {1, 2, 3, 8}) {
    Pool pool(threads);
    for (size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> visits(count);
      pool.run(count, 1, [&](int thread, size_t first, size_t last) {
        EXPECT_LT(thread, threads);
        EXPECT_LT(first, last);
        for (size_t i = first; i < last; ++i) ++visits[i];
      });
      for (const auto& v : visits) EXPECT_EQ(v, 1);
    }
  }
}

TEST(Pool, PartsAreTheSameInEveryRun) {
  Pool pool(3);
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::array<size_t, 3> first{}, last{};
    pool.run(10, 1, [&](int thread, size_t f, size_t l) {
      first[static_cast<size_t>(thread)] = f;
      last[static_cast<size_t>(thread)] = l;
    });
    EXPECT_EQ(first, (std::array<size_t, 3>{0, 4, 7}));
    EXPECT_EQ(last, (std::array<size_t, 3>{4, 7, 10}));
  }
}

TEST(Pool, ASmallCountStaysOnTheCallersThread) {
  Pool pool(4);
  int calls = 0;
  pool.run(99, 100, [&](int thread, size_t, size_t) {
    EXPECT_EQ(thread, 0);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

// In a child with room for a few stacks: the threads that did start are ended, and the caller gets a status.
TEST(Pool, ThreadsThatCannotBeStartedAreAStatus) {
#ifdef GANGWAY_TEST_SANITIZED
  GTEST_SKIP() << "a sanitizer needs the address space that this test takes away";
#else
  const auto start_too_many = [] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t room = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (64u << 20);
    const rlimit limit{room, room};
    setrlimit(RLIMIT_AS, &limit);
    try {
      Pool pool(1000);
    } catch (const Error& error) {
      std::fputs(error.message().c_str(), stderr);
      _exit(error.code() == Code::out_of_memory ? 0 : 1);
    }
    _exit(2);
  };
  EXPECT_EXIT(start_too_many(), ::testing::ExitedWithCode(0), "the pool started [1-9][0-9]* of 999 threads");
#endif
}

TEST(Pool, AnExceptionOfATaskComesToTheCallerAndThePoolWorksOn) {
  Pool pool(2);
  EXPECT_THROW(pool.run(2, 1,
                        [](int thread, size_t, size_t) {
                          if (thread == 1) throw std::runtime_error("task");
                        }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.run(2, 1, [&](int, size_t, size_t) { ++calls; });
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace gangway::cpu
