// Ranks that wait for each other; ranks as threads, of which one rank may have several.
#include "base/expect_error.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

using std::chrono::milliseconds;

Error error_of_sum(ThreadRanks& ranks, int r, Engine& engine, size_t count = 1) {
  std::vector<float> x(count, 1);
  try {
    now(engine, sum_in_place(x.data(), count), ranks.ranks[static_cast<size_t>(r)]->device().stream());
  } catch (const Error& error) {
    return error;
  }
  EXPECT_EQ(x, std::vector<float>(count, static_cast<float>(engine.size())));
  return Error(Code::ok, "no error");
}

TEST(HostCycle, CallsOfTwoGangsThatWaitForEachOtherAreNamed) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& root) {
    const std::vector<int> both{0, 1};
    const auto a = root.create(both, "a"), b = root.create(both, "b");
    const Error error = error_of_sum(ranks, r, r == 0 ? *a : *b, static_cast<size_t>(3 + r));
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    for (const char* const call :
         {"all_reduce #0 of rank 0 (3 f32) for rank 1", "all_reduce #0 of rank 1 (4 f32) for rank 0"})
      EXPECT_NE(error.message().find(call), std::string::npos) << error.message();
    EXPECT_EQ(error_of_sum(ranks, r, root).code(), Code::ok) << "the parent is whole";
  });
}

TEST(HostCycle, ASendThatMeetsACollectiveIsNamed) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& engine) {
    std::vector<float> x(10000);
    Collective c = sum_in_place(x.data(), x.size());
    if (r == 0) {
      c.op = CollectiveOp::recv;
      c.reduce = Reduce::none;
      c.peer = 1;
    }
    EXPECT_EQ(
        error_of([&] { now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream()); }).code(),
        Code::mismatch);
  });
}

// One thread of rank 0 waits for rank 1 in gang x. Rank 1 waits in gang y for rank 0's other thread, which comes.
TEST(HostCycle, ARankIsNotStuckWhileOneOfItsThreadsIsOnItsWay) {
  ThreadRanks ranks(2);
  Meeting meeting(2);
  ranks.run([&](int r, Engine& root) {
    const std::vector<int> both{0, 1};
    const auto x = root.create(both, "x"), y = root.create(both, "y");
    const auto sum = [&](Engine& engine) {
      const Error error = error_of_sum(ranks, r, engine);
      EXPECT_EQ(error.code(), Code::ok) << "rank " << r << ": " << error.message();
    };
    std::thread other;
    if (r == 0) {
      other = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(200));  // the first thread has waited for long
        float one = 1;
        const Collective c = sum_in_place(&one, 1);
        const WorkPtr work = y->run(Channel::user, {&c, 1}, ranks.ranks[0]->device().stream());
        meeting.come();
        work->wait_input(Deadline::never());
        std::this_thread::sleep_for(milliseconds(400));  // and now rank 1 has
        sum(*y);
      });
    } else {
      meeting.come();
      sum(*y);
      sum(*y);
    }
    sum(*x);
    if (other.joinable()) other.join();
  });
}

TEST(HostCycle, ARankIsStuckWhenAllItsThreadsAre) {
  EngineOptions options = small_arena();
  options.timeout_ms = 20'000;
  ThreadRanks ranks(2, options);
  ranks.run([&](int r, Engine& root) {
    const std::vector<int> both{0, 1};
    const auto x = root.create(both, "x"), y = root.create(both, "y"), z = root.create(both, "z");
    if (r == 1) {
      EXPECT_EQ(error_of_sum(ranks, r, *z).code(), Code::mismatch);
      for (const auto& gang : {x, y}) gang->abort(Error(Code::aborted, "not in the ring that was found"));
      return;
    }
    Code of_other = Code::ok;
    std::thread other([&] { of_other = error_of_sum(ranks, r, *y).code(); });
    const Code own = error_of_sum(ranks, r, *x).code();
    other.join();
    EXPECT_TRUE(own == Code::mismatch || of_other == Code::mismatch);
  });
}

}  // namespace
}  // namespace gangway::test
