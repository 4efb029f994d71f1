// A broadcast that no cache holds, with ranks as threads.
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

constexpr size_t kCount = (20 << 20) / sizeof(int32_t) + 5;

class LargeBroadcast {
 public:
  LargeBroadcast(Engine& engine, int root)
      : x_(Buffer::allocate(engine.shared_memory()->allocator(), kCount * sizeof(int32_t))),
        data_(static_cast<int32_t*>(x_->data())) {
    c_.op = CollectiveOp::broadcast;
    c_.dtype = DType::i32;
    c_.peer = root;
    c_.in = c_.out = data_;
    c_.count = kCount;
  }
  const Collective& record() const { return c_; }
  void fill(int32_t value) {
    for (size_t i = 0; i < kCount; ++i) data_[i] = value + static_cast<int32_t>(i);
  }
  void expect(int32_t value) const {
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data_[i], value + static_cast<int32_t>(i)) << i;
  }

 private:
  std::shared_ptr<Buffer> x_;
  int32_t* const data_;
  Collective c_;
};

TEST(HostBroadcast, TheRootMayWriteItsInputWhenItIsReusable) {
  for (const int size : {2, 3}) {
    ThreadRanks ranks(size);
    ranks.run([&](int r, Engine& engine) {
      LargeBroadcast broadcast(engine, 1);
      for (int lap = 0; lap < 4; ++lap) {
        broadcast.fill(r == 1 ? lap : -1);
        now(engine, broadcast.record(), ranks.ranks[static_cast<size_t>(r)]->device().stream());
        broadcast.expect(lap);
      }
    });
  }
}

TEST(HostBroadcast, ABroadcastEndsWhileTheRootIsInAnotherCall) {
  ThreadRanks ranks(3);
  Meeting ended(3);
  ranks.run([&](int r, Engine& engine) {
    LargeBroadcast broadcast(engine, 0);
    broadcast.fill(r == 0 ? 7 : -1);
    const WorkPtr work = engine.run(Channel::user, {&broadcast.record(), 1},
                                    ranks.ranks[static_cast<size_t>(r)]->device().stream());
    if (r == 0) ended.come();
    work->wait_input(Deadline::never());
    if (r != 0) ended.come();
    broadcast.expect(7);
  });
}

TEST(HostBroadcast, AnAbortWhileTheRootWaitsReachesAllRanks) {
  ThreadRanks ranks(2);
  Meeting meeting(2);
  ranks.run([&](int r, Engine& engine) {
    LargeBroadcast broadcast(engine, 0);
    broadcast.fill(r);
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 0) {
      const WorkPtr work = engine.run(Channel::user, {&broadcast.record(), 1}, stream);
      for (int i = 0; i < 100; ++i) EXPECT_FALSE(work->poll_input());
      meeting.come();
      EXPECT_THROW(work->wait_input(Deadline::never()), Error);
      broadcast.expect(0);
    } else {
      meeting.come();
      engine.abort(Error(Code::aborted, "rank 1 does not come"));
      broadcast.expect(1);
    }
  });
}

}  // namespace
}  // namespace gangway::test
