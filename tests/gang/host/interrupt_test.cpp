// The caller's interrupt hook in calls of the host engine; ranks as threads.
#include <optional>

#include "base/error_of.h"
#include "base/interrupt.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

// While it lives, this thread's waits are asked to end.
struct Interrupt {
  Interrupt() {
    set_interrupt([](void*) { return 1; }, nullptr, nullptr);
  }
  ~Interrupt() { set_interrupt(nullptr, nullptr, nullptr); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
};

TEST(HostInterrupt, AnInterruptWhileAGangIsMadeBreaksTheParentOnEveryRank) {
  for (const bool shared : {false, true}) {
    ThreadRanks ranks(2);
    Meeting interrupted(2);
    ranks.run([&](int r, Engine& engine) {
      const std::vector<int> both{0, 1};
      if (r == 1) interrupted.come();
      std::optional<Interrupt> interrupt;
      if (r == 0) interrupt.emplace();
      const Error error = error_of([&] {
        if (shared)
          engine.shared_memory()->allocate(4096);
        else
          engine.create(both, "child");
      });
      interrupt.reset();
      if (r == 0) interrupted.come();
      EXPECT_EQ(error.code(), r == 0 ? Code::caller : Code::aborted) << error.message();
      if (r == 1) {
        EXPECT_EQ(error.message(),
                  "gang: aborted by rank 0: the wait was ended by the caller's interrupt hook");
      }
      ASSERT_TRUE(engine.error());
    });
  }
}

constexpr size_t kBytes = 64 << 20;
constexpr int kCalls = 4 * kChannels;  // as many as a rank may have published at once to one other

// Rank 1 sends arena memory, which takes it no time: then rank 0 moves data without a pause.
std::vector<WorkPtr> transfers(Engine& engine, Stream& stream, Buffer& x, int calls) {
  Collective c;
  c.op = engine.rank() == 1 ? CollectiveOp::send : CollectiveOp::recv;
  c.dtype = DType::u8;
  c.in = c.out = x.data();
  c.count = kBytes;
  c.peer = 1 - engine.rank();
  std::vector<WorkPtr> works;
  for (int i = 0; i < calls; ++i)
    works.push_back(engine.run(static_cast<Channel>(i % kChannels), {&c, 1}, stream));
  return works;
}

TEST(HostInterrupt, TheHookIsAskedWhileDataMoves) {
  ThreadRanks ranks(2);
  Meeting begun(2);
  ranks.run([&](int r, Engine& engine) {
    const auto x = Buffer::allocate(engine.shared_memory()->allocator(), kBytes);
    if (r == 0) begun.come();
    const auto works = transfers(engine, ranks.ranks[static_cast<size_t>(r)]->device().stream(), *x, kCalls);
    if (r == 1) begun.come();
    const auto wait = [&] {  // the last first: one wait in which all move
      for (size_t i = works.size(); i-- > 0;) works[i]->wait_input(Deadline::never());
    };
    if (r == 0) {
      const Interrupt interrupt;
      EXPECT_EQ(error_of(wait).code(), Code::caller);
    }
    begun.come();
    wait();
  });
}

TEST(HostInterrupt, OneProgressCallMovesOnlyAPartOfALargeCall) {
  ThreadRanks ranks(2);
  Meeting begun(2);
  ranks.run([&](int r, Engine& engine) {
    const auto x = Buffer::allocate(engine.shared_memory()->allocator(), kBytes);
    if (r == 0) begun.come();
    const auto works = transfers(engine, ranks.ranks[static_cast<size_t>(r)]->device().stream(), *x, 1);
    if (r == 1) begun.come();
    if (r == 0) {
      const size_t moved = engine.traffic().bytes_moved;
      EXPECT_GT(moved, 0u);
      EXPECT_LT(moved, kBytes / 4);
      EXPECT_FALSE(works[0]->poll());
      EXPECT_LT(engine.traffic().bytes_moved, kBytes / 2);
    }
    works[0]->wait_input(Deadline::never());
    EXPECT_EQ(engine.traffic().bytes_moved, r == 0 ? kBytes : 0);
  });
}

}  // namespace
}  // namespace gangway::test
