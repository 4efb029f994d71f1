// Ranks that make different calls; ranks as threads.
#include <chrono>

#include "base/expect_error.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

struct Case {
  const char* what;
  Collective first, second;  // of ranks 0 and 1
  const char* part;          // of the message
};

std::vector<Case> mismatches() {
  std::vector<Case> cases;
  Collective gather, scatter, sum;
  gather.op = CollectiveOp::all_gather;
  gather.count = 4;
  scatter.op = CollectiveOp::reduce_scatter;
  scatter.count = 16;
  scatter.reduce = Reduce::sum;
  sum.op = CollectiveOp::all_reduce;
  sum.count = 8;
  sum.reduce = Reduce::sum;
  cases.push_back({"op", scatter, gather,
                   "all_gather #0 of rank 1 (4 f32) meets reduce_scatter #0 of rank 0 (16 f32): ranks called "
                   "different collectives"});
  cases.push_back({"count", sum, sum, "all_reduce #0 of rank"});
  cases.back().second.count = 9;
  cases.push_back({"dtype", sum, sum, "(8 i32)"});
  cases.back().second.dtype = DType::i32;
  cases.push_back({"reduction", sum, sum, "(8 f32, max)"});
  cases.back().second.reduce = Reduce::max;
  Collective broadcast;
  broadcast.op = CollectiveOp::broadcast;
  broadcast.count = 8;
  broadcast.peer = 0;
  cases.push_back({"root", broadcast, broadcast, "(8 f32, root 1)"});
  cases.back().second.peer = 1;
  Collective large = broadcast;
  large.count = 600000;  // more than is staged at once
  cases.push_back({"root of a large one", large, large, "(600000 f32, root 1)"});
  cases.back().second.peer = 1;
  Collective all = sum;
  all.count = 100000;
  Collective other = large;
  cases.push_back({"large ones", all, other, "meets"});
  return cases;
}

// A call that needs little of the other ranks: rank 0 is its root.
Collective rooted(CollectiveOp op, size_t count) {
  Collective c;
  c.op = op;
  c.count = count;
  c.peer = 0;
  if (op == CollectiveOp::reduce) c.reduce = Reduce::sum;
  return c;
}

// Rank 2 makes another call. Nobody waits for the next call to hear of it, also not a rank that has what it
// needs.
TEST(HostMismatch, EveryRankOfARootedCallHearsOfItInThatCall) {
  const CollectiveOp ops[] = {CollectiveOp::broadcast, CollectiveOp::reduce, CollectiveOp::gather,
                              CollectiveOp::scatter};
  for (const CollectiveOp op : ops)
    for (const size_t count : {size_t{0}, size_t{1}, size_t{100}, size_t{100'001}})
      for (const int last : {0, 1, 2}) {
        ThreadRanks ranks(3);
        std::vector<Code> codes(3, Code::ok);
        ranks.run([&](int r, Engine& engine) {
          std::vector<float> in(3 * (count + 1)), out(3 * (count + 1));
          Collective c = rooted(op, count);
          if (r == 2) c.count = count + 1;
          c.in = in.data();
          c.out = out.data();
          if (r == last) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          codes[static_cast<size_t>(r)] =
              error_of([&] {
                now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream());
              }).code();
        });
        EXPECT_EQ(codes, std::vector<Code>(3, Code::mismatch))
            << name(op) << " of " << count << ", rank " << last << " comes last";
      }
}

TEST(HostMismatch, TwoRootedCallsThatNeedNothingOfEachOtherAreAMismatchOnBothRanks) {
  ThreadRanks ranks(2);
  std::vector<Code> codes(2, Code::ok);
  ranks.run([&](int r, Engine& engine) {
    float in = 1, out = 0;
    Collective c = rooted(r == 0 ? CollectiveOp::broadcast : CollectiveOp::reduce, 1);
    c.in = &in;
    c.out = &out;
    codes[static_cast<size_t>(r)] =
        error_of([&] { now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream()); }).code();
  });
  EXPECT_EQ(codes, std::vector<Code>(2, Code::mismatch));
}

TEST(HostMismatch, ARootNamesTheRankThatDoesNotComeToItsBroadcast) {
  EngineOptions options = small_arena();
  options.timeout_ms = 200;
  ThreadRanks ranks(3, options);
  Meeting over(3);
  ranks.run([&](int r, Engine& engine) {
    if (r != 2) {
      float x = 1;
      Collective c = rooted(CollectiveOp::broadcast, 1);
      c.in = c.out = &x;
      const Error error =
          error_of([&] { now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream()); });
      EXPECT_EQ(error.code(), Code::timeout);
      EXPECT_EQ(error.message(), "gang.broadcast #0: rank 2 did not come within 200 ms");
    }
    over.come();
  });
}

TEST(HostMismatch, DifferentCallsAreAMismatchOnEveryRank) {
  for (const Case& test : mismatches())
    for (const int first : {0, 1}) {  // who comes first
      ThreadRanks ranks(3);
      std::vector<Error> errors(3, Error(Code::ok, ""));
      ranks.run([&](int r, Engine& engine) {
        std::vector<float> in(600000), out(600000);
        Collective c = r == 1 ? test.second : test.first;
        c.in = in.data();
        c.out = out.data();
        if ((r == 1) != (first == 1)) std::this_thread::sleep_for(std::chrono::milliseconds(30));
        errors[static_cast<size_t>(r)] = error_of([&] {
          now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream());
          // A rank that needed nobody may have left before; it hears of it in its next call.
          std::this_thread::sleep_for(std::chrono::milliseconds(60));
          Collective barrier;
          now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
        });
      });
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ(errors[static_cast<size_t>(r)].code(), Code::mismatch) << test.what << ", rank " << r;
        EXPECT_EQ(errors[static_cast<size_t>(r)].message(), errors[0].message()) << test.what;
        EXPECT_EQ(errors[static_cast<size_t>(r)].rank, r);
      }
      // The text is told from the side of the rank that saw it first.
      const bool told_from_the_other =
          std::string(test.what) == "op" && errors[0].message().find(".all_gather") == std::string::npos;
      EXPECT_TRUE(told_from_the_other || errors[0].message().find(test.part) != std::string::npos)
          << test.what << ": " << errors[0].message();
    }
}

TEST(HostMismatch, SendAndReceiveOfAnotherSizeAreAMismatch) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    std::vector<float> x(1000);
    Collective c;
    c.op = r == 0 ? CollectiveOp::send : CollectiveOp::recv;
    c.peer = 1 - r;
    c.count = r == 0 ? 1000 : 500;
    c.in = c.out = x.data();
    const Error error = error_of([&] {
      now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Collective barrier;
      now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
    });
    EXPECT_EQ(error.code(), Code::mismatch);
    EXPECT_EQ(error.message(),
              "gang.recv #0 of rank 1 (500 f32) meets send #0 of rank 0 (1000 f32): the two ends differ");
  });
}

TEST(HostMismatch, ACallThatMeetsAShutdownIsAMismatch) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    float x = 1;
    const Error error = error_of([&] {
      if (r == 0) {
        engine.shutdown(Deadline::never());
      } else {
        now(engine, sum_in_place(&x, 1), ranks.ranks[1]->device().stream());
      }
    });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_EQ(
        error.message(),
        "gang.all_reduce #0 of rank 1 (1 f32) meets shutdown of rank 0: ranks called different collectives");
  });
}

}  // namespace
}  // namespace gangway::test
