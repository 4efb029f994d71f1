// Calls in flight that share memory; ranks as threads.
#include "gang/host_overlap.h"

#include "gang/host_threads.h"

namespace gangway::test {
namespace {

TEST(HostOverlap, CallsThatShareMemoryRunInCallOrder) {
  for (const int size : {1, 2, 3, 4}) {
    ThreadRanks ranks(size);
    ranks.run([&](int r, Engine& engine) {
      Device& device = ranks.ranks[static_cast<size_t>(r)]->device();
      for (int round = 0; round < 5; ++round) {
        OverlappingCalls(engine, device.stream(), engine.shared_memory()->allocator()).check_all();
        OverlappingCalls(engine, device.stream(), device.allocator()).check_all();
        OverlappingCalls(engine, device.stream(),
                         r % 2 == 0 ? engine.shared_memory()->allocator() : device.allocator())
            .check_all();
      }
    });
  }
}

TEST(HostOverlap, TheLaterOfTwoCallsThatShareMemoryStartsWithoutWaiting) {
  ThreadRanks ranks(2);
  Meeting started(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<float> x(3000, 1), all(6000, -1);
    Collective sum, gather;
    sum.op = CollectiveOp::all_reduce;
    sum.reduce = Reduce::sum;
    sum.out = x.data();
    sum.in = gather.in = x.data();
    gather.op = CollectiveOp::all_gather;
    gather.out = all.data();
    sum.count = gather.count = x.size();
    if (r == 1) started.come();
    const WorkPtr first = engine.run(Channel::user, {&sum, 1}, stream);
    const WorkPtr second = engine.run(Channel::user, {&gather, 1}, stream);
    if (r == 0) {
      EXPECT_FALSE(second->poll());
      try {
        second->wait(Deadline::after_ms(20));
        ADD_FAILURE() << "nobody had come";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::not_ready);
        EXPECT_EQ(error.message(), "gang.all_reduce #0: not ready; waiting for rank 1");
      }
      EXPECT_EQ(engine.flight_record()[1].state, "waiting for rank 1");
      started.come();
    }
    second->wait_input(Deadline::never());
    EXPECT_EQ(all, std::vector<float>(6000, 2));
    first->wait_input(Deadline::never());
  });
}

}  // namespace
}  // namespace gangway::test
