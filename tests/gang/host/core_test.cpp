// What a crash with core dumps on costs: the arena is in no core file, and peers do not wait until it is written.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gang/host/joined.h"
#include "support/scratch.h"

namespace gangway::test {
namespace {

struct Mapping {
  uintptr_t first = 0, last = 0;
  std::string name;
  bool dumped = false;
};

std::vector<Mapping> mappings() {
  std::vector<Mapping> all;
  std::ifstream file("/proc/self/smaps");
  for (std::string line; std::getline(file, line);) {
    Mapping m;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &m.first, &m.last) == 2) {
      m.name = line;
      all.push_back(m);
    } else if (line.starts_with("VmFlags:")) {
      all.back().dumped = (line + " ").find(" dd ") == std::string::npos;
    }
  }
  return all;
}

// Of the mappings that `wanted` picks: how many there are, none of which would be dumped.
template <typename Wanted>
int64_t left_out(Wanted&& wanted) {
  int64_t found = 0;
  for (const Mapping& m : mappings()) {
    if (!wanted(m)) continue;
    if (m.dumped) fail(Code::internal, "would be dumped: ", m.name);
    ++found;
  }
  return found;
}

TEST(HostCore, BothMappingsAreLeftOutAlsoWhereTheyWereEmptiedOrSplit) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    const auto kept = Buffer::allocate(joined.engine->shared_memory()->allocator(), 8 << 20);
    Buffer::allocate(joined.engine->shared_memory()->allocator(), 8 << 20);  // its pages are given back
    auto* const page = static_cast<unsigned char*>(kept->data()) + (4 << 20);
    mprotect(page, 4096, PROT_READ);
    std::vector<float> x(10);
    sum(joined, x);
    report.values[0] =
        left_out([](const Mapping& m) { return m.name.find("memfd:gangway ") != std::string::npos; });
    joined.engine->shutdown(Deadline::after_ms(60'000));
  });
  ranks.expect_all_well();
  for (const int r : {0, 1})
    EXPECT_GE(ranks.report(r).values[0], 4) << "read-only, and three parts of the other";
}

TEST(HostCore, TheArenaOfThreadsIsLeftOut) {
  ThreadRanks ranks(2);
  const auto block = Buffer::allocate(ranks.engines[0]->shared_memory()->allocator(), 1 << 20);
  const auto at = reinterpret_cast<uintptr_t>(block->data());
  EXPECT_EQ(left_out([&](const Mapping& m) { return m.first <= at && at < m.last; }), 1);
}

TEST(HostCore, ACrashIsReportedWhileItsCoreFileIsWrittenAndTheFileHoldsNoArena) {
  std::string pattern;
  std::getline(std::ifstream("/proc/sys/kernel/core_pattern"), pattern);
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  if (pattern.find_first_of("|/") != std::string::npos || limit.rlim_max != RLIM_INFINITY)
    GTEST_SKIP() << "cores go to " << pattern << ", at most " << limit.rlim_max << " bytes";
  const Scratch scratch;
  Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 3, store);
    const auto block = Buffer::allocate(joined.engine->shared_memory()->allocator(), 1 << 20);
    std::vector<float> x(10);
    sum(joined, x);
    if (r == 1) {
      const std::vector<char> own(size_t{300} << 20, 'x');  // takes the kernel a while to write
      rlimit all = limit;
      all.rlim_cur = RLIM_INFINITY;
      setrlimit(RLIMIT_CORE, &all);
      if (chdir(scratch.path().c_str()) != 0) fail_system(Code::io, "chdir", errno);
      report.at_ns = now_ns();
      abort();
    }
    until_failure(report, [&] { sum(joined, x); });
    stay_until_released(report);
  });
  release_after_failures(ranks, {0, 2});
  ranks.join();
  for (const int r : {0, 2}) {
    EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).peer, 1) << ranks.report(r).text;
    EXPECT_NE(std::strstr(ranks.report(r).text, "killed by signal 6"), nullptr) << ranks.report(r).text;
    const double ms = static_cast<double>(ranks.report(r).at_ns - ranks.report(1).at_ns) / 1e6;
    std::printf("rank %d noticed it after %.1f ms\n", r, ms);
    EXPECT_LT(ms, 1000) << "a busy machine takes longer, but not as long as the arena's pages";
  }
  EXPECT_TRUE(WCOREDUMP(ranks.status(1)));
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(scratch.path())) {
    ++files;
    EXPECT_LT(file.file_size(), small_arena().arena_bytes) << "twice the arena, with it";
  }
  EXPECT_EQ(files, 1u);
}

}  // namespace
}  // namespace gangway::test
