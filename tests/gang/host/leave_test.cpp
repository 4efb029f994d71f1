// Ranks that let go of their engine while calls are on their way; ranks as threads.
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

constexpr int kCalls = 12;  // more than a channel, or a pair, has slots: the last are not begun at once

struct Calls {
  std::vector<float> x;
  std::vector<WorkPtr> works;

  Calls(Engine& engine, Stream& stream, CollectiveOp op) : x(kCalls, 1) {
    for (float& one : x) works.push_back(run(engine, stream, op, one));
  }
  static WorkPtr run(Engine& engine, Stream& stream, CollectiveOp op, float& one) {
    Collective c;
    c.op = op == CollectiveOp::send && engine.rank() == 0 ? CollectiveOp::recv : op;
    c.reduce = op == CollectiveOp::all_reduce ? Reduce::sum : Reduce::none;
    c.in = c.out = &one;
    c.count = 1;
    c.peer = op == CollectiveOp::send ? 1 - engine.rank() : -1;
    return engine.run(Channel::user, {&c, 1}, stream);
  }
};

Code code_of(Work& work, Deadline deadline) {
  try {
    work.wait(deadline);
  } catch (const Error& error) {
    return error.code();
  }
  return Code::ok;
}

TEST(HostLeave, OnlyTheStartedCallsOfAReleasedRankComplete) {
  for (const CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::send}) {
    ThreadRanks ranks(2);
    std::shared_ptr<Engine> second = ranks.engines[1];
    Meeting both(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      if (r == 1) {
        const Calls calls(engine, stream, op);
        second.reset();
        ranks.engines[1].reset();  // the works are held and go on
        both.come();
        both.come();
        for (const WorkPtr& work : calls.works) work->wait_input(Deadline::never());
        both.come();
        return;
      }
      both.come();
      const Calls calls(engine, stream, op);
      EXPECT_EQ(code_of(*calls.works.back(), Deadline::after_ms(200)), Code::not_ready);
      both.come();
      for (const WorkPtr& work : calls.works) work->wait_input(Deadline::never());
      float one = 1;
      EXPECT_EQ(code_of(*Calls::run(engine, stream, op, one), Deadline::never()), Code::peer_lost);
      both.come();
    });
  }
}

TEST(HostLeave, ALongTextReachesPeersCutBetweenCharacters) {
  std::string said;
  for (int i = 0; i < 1000; ++i) said += "\xc3\xa4";
  for (const char* start : {"", "x"}) {  // one of the two would be cut inside of a character
    ThreadRanks ranks(2);
    ranks.run([&](int r, Engine& engine) {
      if (r == 1) return engine.abort(Error(Code::aborted, start + said));
      float x = 1;
      std::string got;
      try {
        Calls::run(engine, ranks.ranks[0]->device().stream(), CollectiveOp::all_reduce, x)
            ->wait(Deadline::never());
      } catch (const Error& error) {
        got = error.message();
      }
      EXPECT_EQ(got.find('?'), std::string::npos) << got;  // what a cut character would have become
      EXPECT_GT(got.size(), 600u);
    });
  }
}

}  // namespace
}  // namespace gangway::test
