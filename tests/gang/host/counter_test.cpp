// Counters that a rank publishes and others wait for, and ranks whose threads end; ranks as threads.
#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/expect_error.h"
#include "gang/host/presence/member.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

TEST(HostCounter, AWaitForACounterEndsWhenItsOwnerPublishes) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    const SharedRegion region = engine.shared_memory()->allocate(4096);
    auto& counter = *static_cast<std::atomic<uint64_t>*>(region.writable->data());
    EXPECT_EQ(counter.load(), 0u);
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      engine.shared_memory()->publish(counter, 1);
    } else {
      engine.shared_memory()->wait(counter, 1, 0, "ready");
    }
    Collective barrier;
    now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
  });
}

TEST(HostCounter, AnEndedThreadIsLostToAWaitForACounterAndToAShutdown) {
  for (const bool by_counter : {true, false}) {
    ThreadRanks ranks(2);
    Meeting both(2);
    ranks.run([&](int r, Engine& engine) {
      const SharedRegion region = engine.shared_memory()->allocate(4096);
      auto& counter = *static_cast<std::atomic<uint64_t>*>(region.writable->data());
      both.come();
      if (r == 1) return;
      const Error error = error_of([&] {
        if (by_counter)
          engine.shared_memory()->wait(counter, 1, 1, "ready");
        else
          engine.shutdown(Deadline::never());
      });
      EXPECT_EQ(error.code(), Code::peer_lost) << error.message();
      EXPECT_EQ(error.peer, 1);
      EXPECT_NE(error.message().find(", its thread ended; rank 0 is alive"), std::string::npos)
          << error.message();
    });
  }
}

TEST(HostCounter, AnEndedThreadIsLostToItsPeersWithinATenthOfASecond) {
  for (const int late_ms : {0, 200}) {
    ThreadRanks ranks(3);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      float x = 1;
      now(engine, sum_in_place(&x, 1), stream);
      if (r == 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
      const int64_t begun_ns = host::now_ns();
      const Error error = error_of([&] { now(engine, sum_in_place(&x, 1), stream); });
      EXPECT_EQ(error.code(), Code::peer_lost) << error.message();
      const double ms = static_cast<double>(host::now_ns() - begun_ns) / 1e6;
      std::printf("noticed after %.1f ms\n", ms);
      EXPECT_LT(ms, 1000) << "100 on a machine that is not busy";
    });
  }
}

TEST(HostCounter, ARankWhoseNextThreadIsOnItsWayIsNotLost) {
  EngineOptions options = small_arena();
  options.timeout_ms = 6000;
  ThreadRanks ranks(2, options);
  const auto meet = [&](int r, Engine& engine) {
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    now(engine, Collective{}, ranks.ranks[static_cast<size_t>(r)]->device().stream());
  };
  ranks.run(meet);
  std::this_thread::sleep_for(std::chrono::milliseconds(options.timeout_ms / 2 + 100));
  ranks.run(meet);
}

TEST(HostCounter, ACounterThatIsNotPublishedTimesOutAndNamesItsOwner) {
  EngineOptions options = small_arena();
  options.timeout_ms = 1000;
  ThreadRanks ranks(2, options);
  Meeting both(2);
  ranks.run([&](int r, Engine& engine) {
    both.come();  // the set-up has the same deadline
    const SharedRegion region = engine.shared_memory()->allocate(4096);
    auto& counter = *static_cast<std::atomic<uint64_t>*>(region.writable->data());
    if (r == 1) {
      const Error error = error_of([&] { engine.shared_memory()->wait(counter, 2, 0, "ready"); });
      EXPECT_EQ(error.code(), Code::timeout);
      EXPECT_EQ(error.message(), "gang.ready: rank 0 did not come within 1000 ms");
    }
    both.come();
  });
}

}  // namespace
}  // namespace gangway::test
