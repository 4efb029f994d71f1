// Calls in flight that share memory, and the order of calls; ranks as threads.
#include "gang/host/overlap.h"

#include <random>

#include "gang/host/threads.h"

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

// The same calls on every rank, of which some share memory. Each rank is late, and looks at its works, at times of its
// own.
void run_late(Engine& engine, Stream& stream, unsigned seed) {
  constexpr int kCalls = 60;  // as many as the ring of last calls holds
  constexpr Channel kUsed[] = {Channel::user, Channel::fsdp_gather, Channel::fsdp_reduce};
  std::mt19937 program(seed), delay(seed * 100 + static_cast<unsigned>(engine.rank()));
  std::vector<std::vector<float>> data(3 * kCalls, std::vector<float>(5000, 1));
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < kCalls; ++i) {
    const size_t channel = program() % 3;
    const size_t place = program() % 3 == 0 ? 0 : i;  // some lie over others of their channel
    std::vector<float>& x = data[channel * kCalls + place];
    Collective c = sum_in_place(x.data(), 1 + program() % x.size());
    if (program() % 2 == 0) c.op = CollectiveOp::broadcast, c.reduce = Reduce::none, c.peer = 1;
    works.push_back(engine.run(kUsed[channel], {&c, 1}, stream));
    if (delay() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delay() % 2000));
    if (delay() % 4 == 0) works[delay() % works.size()]->poll();
  }
  std::shuffle(works.begin(), works.end(), delay);
  for (const WorkPtr& work : works) work->wait_input(Deadline::never());
}

TEST(HostOrder, CallsOfAllChannelsStartInTheProgramsOrderWhicheverRankIsLate) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    ThreadRanks ranks(3);
    std::vector<std::vector<FlightEntry>> flights(3);
    ranks.run([&](int r, Engine& engine) {
      const auto at = static_cast<size_t>(r);
      run_late(engine, ranks.ranks[at]->device().stream(), seed);
      flights[at] = engine.flight_record();
    });
    for (const auto& own : flights) {
      ASSERT_EQ(own.size(), 60u);
      for (size_t i = 0; i < own.size(); ++i) {
        const FlightEntry& want = flights[0][i];
        EXPECT_TRUE(own[i].channel == want.channel && own[i].sequence == want.sequence &&
                    own[i].op == want.op && own[i].bytes == want.bytes)
            << "call " << i << ": " << name(own[i].op) << " #" << own[i].sequence;
      }
    }
  }
}

}  // namespace
}  // namespace gangway::test
