// Blocking sends and receives, with ranks as threads.
#include "gang/host/threads.h"

#include <algorithm>

namespace gangway::test {
namespace {

Collective message(CollectiveOp op, int peer, int32_t* data, size_t count) {
  Collective c;
  c.op = op;
  c.peer = peer;
  c.dtype = DType::i32;
  c.in = op == CollectiveOp::send ? data : nullptr;
  c.out = op == CollectiveOp::send ? nullptr : data;
  c.count = count;
  return c;
}

// Every way a message can travel, again and again past the slots of a pair: beside its flag, in a slot of small
// ones, from where it lies, by staging.
TEST(HostPairs, BlockingMessagesOfAnySizeArriveInOrderInBothDirections) {
  constexpr size_t kCounts[] = {0, 1, 10, 11, 128, 129, 1024, 1025, 16384, 50001};
  constexpr size_t kMost = 50001;
  for (const bool inside : {false, true}) {
    ThreadRanks ranks(3);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      const auto arena = Buffer::allocate(engine.shared_memory()->allocator(), kMost * sizeof(int32_t));
      std::vector<int32_t> heap(kMost);
      int32_t* const data = inside ? static_cast<int32_t*>(arena->data()) : heap.data();
      for (int lap = 0; lap < 3; ++lap)
        for (const size_t count : kCounts)
          for (int turn = 0; turn < 3; ++turn) {  // `turn` sends to the next one
            const int32_t value = lap * 1000 + static_cast<int32_t>(count) + turn;
            if (r == turn) {
              std::fill_n(data, count, value);
              now(engine, message(CollectiveOp::send, (r + 1) % 3, data, count), stream);
              std::fill_n(data, count, -1);  // its own again
            } else if (r == (turn + 1) % 3) {
              now(engine, message(CollectiveOp::recv, turn, data, count), stream);
              for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value) << count << " from " << turn;
            }
          }
    });
  }
}

TEST(HostPairs, ASenderRunsAheadOfItsReceiverByTheSlotsOfThePair) {
  ThreadRanks ranks(2);
  Meeting meeting(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    for (int lap = 0; lap < 20; ++lap) {
      if (r == 1) meeting.come();
      for (int32_t i = 0; i < 4; ++i) {
        int32_t value = r == 0 ? 4 * lap + i : -1;
        now(engine, message(r == 0 ? CollectiveOp::send : CollectiveOp::recv, 1 - r, &value, 1), stream);
        EXPECT_EQ(value, 4 * lap + i);
      }
      if (r == 0) meeting.come();  // all were sent before the first was asked for
      meeting.come();
    }
  });
}

TEST(HostPairs, TheTwoEndsAgreeOnCountAndTypeAlone) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    int32_t value = r == 0 ? 7 : 0;
    Collective c = message(r == 0 ? CollectiveOp::send : CollectiveOp::recv, 1 - r, &value, 1);
    if (r == 0) c.reduce = Reduce::sum;
    now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream());
    EXPECT_EQ(value, 7);
  });
}

}  // namespace
}  // namespace gangway::test
