// Lack of memory at every single allocation of a call: an error on every rank, never a hang, never a crash.
#include "gang/host/threads.h"

#include <cstdio>

#include "gang/rank_out_of_memory.h"
#include "gang/thread_ranks.h"
#include "mesh/gangs.h"

namespace gangway::test {
namespace {

// A span of calls by rank 0 with `allocations` of memory for it. True: that was enough.
bool calls_succeed(long allocations, Meeting& both, ThreadRanks& ranks) {
  bool enough = false;
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<float> x(5000, 1), y(5000), z(100, 1);
    Collective sum, send, barrier;
    sum.op = CollectiveOp::all_reduce;
    sum.reduce = Reduce::sum;
    sum.in = x.data();
    sum.out = y.data();
    sum.count = x.size();
    send.op = r == 0 ? CollectiveOp::send : CollectiveOp::recv;
    send.peer = 1 - r;
    send.in = send.out = z.data();
    send.count = z.size();
    const Collective span[] = {sum, send, barrier};
    both.come();
    Code code = Code::ok;
    if (r == 0) allocations_left = allocations;
    try {
      engine.run(Channel::user, span, stream)->wait_input(Deadline::never());
    } catch (const Error& error) {
      code = error.code();
    } catch (const std::bad_alloc&) {  // before anything began: the peer hears of it by an abort
      code = Code::out_of_memory;
    }
    allocations_left = -1;
    if (code != Code::ok) engine.abort(Error(Code::aborted, "out of memory"));
    if (r == 0) {
      enough = code == Code::ok;
      EXPECT_TRUE(enough || code == Code::out_of_memory) << name(code) << " after " << allocations;
    } else if (code != Code::ok) {
      EXPECT_EQ(code, Code::aborted) << "after " << allocations;
    }
    if (code == Code::ok) {
      EXPECT_EQ(y[4999], 2);
    }
    both.come();
  });
  return enough;
}

TEST(HostOutOfMemory, EveryAllocationOfACallMayFail) {
  long allocations = 0;
  for (; allocations < 3000; ++allocations) {
    ThreadRanks ranks(2);
    Meeting both(2);
    if (calls_succeed(allocations, both, ranks)) break;
  }
  EXPECT_GT(allocations, 3) << "a first call allocates memory";
  EXPECT_LT(allocations, 3000);
  std::printf("a first span of calls makes %ld allocations\n", allocations);
}

// Rank 1 makes parallel gangs with `allocations` of memory for it, then none or (`once`) all but one. True: that was
// enough.
bool gangs_are_made(long allocations, bool once) {
  bool enough = false;
  run_ranks(4, [&](Gang& root) {
    if (made_with(root, allocations, once, [&] { create_parallel_gangs(root.shared_from_this(), /*tp=*/2); }))
      enough = true;
  });
  return enough;
}

TEST(HostOutOfMemory, EveryAllocationOfOneRankMayFailWhileParallelGangsAreMade) {
  constexpr long kMost = 5000;
  for (const bool once : {false, true}) {
    long allocations = 0;
    while (allocations < kMost && !gangs_are_made(allocations, once)) allocations += 1 + allocations / 50;
    EXPECT_GT(allocations, 10) << "gangs allocate memory";
    EXPECT_LT(allocations, kMost);
    std::printf("parallel gangs of four ranks make up to %ld allocations on one\n", allocations);
  }
}

}  // namespace
}  // namespace gangway::test
