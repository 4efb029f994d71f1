#include "base/log.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace gangway {
namespace {

TEST(Log, KeepsTheNewestLinesByNumber) {
  log(LogLevel::info, "first");
  const uint64_t start = log_lines(0).back().number;
  for (int i = 0; i < 1500; ++i) log(LogLevel::warning, std::to_string(i));
  const std::vector<LogLine> kept = log_lines(start);
  ASSERT_EQ(kept.size(), 1024u);
  EXPECT_EQ(kept.back().number, start + 1500);
  EXPECT_EQ(kept.back().message, "1499");
  EXPECT_EQ(kept.back().level, LogLevel::warning);
  for (size_t i = 1; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].number, kept[i - 1].number + 1);
    EXPECT_GE(kept[i].nanoseconds, 0);
  }
  EXPECT_EQ(log_lines(start + 1499).size(), 2u);
  EXPECT_TRUE(log_lines(start + 1501).empty());
}

TEST(Log, LinesOfManyThreadsAreAllThere) {
  log(LogLevel::debug, "mark");
  const uint64_t start = log_lines(0).back().number + 1;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log(LogLevel::info, std::to_string(t * 100 + i));
    });
  for (std::thread& t : threads) t.join();
  std::set<std::string> seen;
  for (const LogLine& line : log_lines(start)) seen.insert(line.message);
  EXPECT_EQ(seen.size(), 400u);
}

}  // namespace
}  // namespace gangway
