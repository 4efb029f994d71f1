// What the host engine does when ranks are late, leave, stop or abort; ranks as threads.
#include <algorithm>
#include <chrono>

#include "base/expect_error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

TEST(HostFailure, CallsThatWaitForASlotGoBeforeTheShutdown) {
  constexpr int kCalls = 20;  // more than a pair or a channel has slots
  for (const CollectiveOp op : {CollectiveOp::send, CollectiveOp::all_reduce}) {
    ThreadRanks ranks(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      std::vector<float> x(kCalls, static_cast<float>(r + 1));
      std::vector<WorkPtr> works;
      for (float& one : x) {
        Collective c = sum_in_place(&one, 1);
        if (op == CollectiveOp::send) {
          c.op = r == 0 ? CollectiveOp::send : CollectiveOp::recv;
          c.reduce = Reduce::none;
          c.peer = 1 - r;
          if (r == 0) c.out = nullptr;
        }
        const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
        if (r == 0)
          works.push_back(work);  // nobody waits for these
        else
          work->wait_input(Deadline::never());
      }
      engine.shutdown(Deadline::after_ms(60'000));
      EXPECT_EQ(x, std::vector<float>(kCalls, op == CollectiveOp::send ? 1 : 3));
    });
  }
}

// A long sum is added to the output part by part, so the output of a call that fails may have a part of it.
// No rank may take such an output for a result.
TEST(HostFailure, AnAccumulationThatFailsIsToldOnEveryRankAndBreaksTheGang) {
  constexpr size_t kCount = 600'000;
  for (const CollectiveOp op :
       {CollectiveOp::all_reduce, CollectiveOp::reduce, CollectiveOp::reduce_scatter}) {
    ThreadRanks ranks(3);
    Meeting begun(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      std::vector<float> in(3 * kCount, 1), out(kCount, static_cast<float>(r));
      Collective c = sum_in_place(in.data(), kCount);
      c.op = op;
      c.out = out.data();
      c.accumulate = true;
      if (op == CollectiveOp::reduce) c.peer = 0;
      if (r == 2) {
        begun.come();
        engine.abort(Error(Code::aborted, "a reason"));
        return;
      }
      const Error error = error_of([&] {
        const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
        if (r == 0) begun.come();
        work->wait(Deadline::never());
      });
      EXPECT_EQ(error.code(), Code::aborted) << error.message();
      EXPECT_EQ(error_of([&] { now(engine, c, stream); }).code(), Code::aborted) << "the gang is broken";
    });
  }
}

TEST(HostFailure, ATimeoutNamesTheMissingRanksAndBreaksTheGang) {
  EngineOptions options = small_arena();
  options.timeout_ms = 200;
  ThreadRanks ranks(4, options);
  Meeting waiters(2), all(4);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 1 || r == 3) {
      all.come();
      // The first error, told at once: had it waited itself, it would miss nobody.
      const Error error = error_of([&] {
        Collective barrier;
        now(engine, barrier, stream);
      });
      EXPECT_EQ(error.code(), Code::timeout);
      EXPECT_NE(error.message().find("gang.all_reduce #0: ranks 1, 3 did not come"), std::string::npos)
          << error.message();
      return;
    }
    float x = 0;
    const Collective c = sum_in_place(&x, 1);
    const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
    waiters.come();  // each has begun before either counts its time
    const Error error = error_of([&] { work->wait(Deadline::never()); });
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_EQ(error.message(), "gang.all_reduce #0: ranks 1, 3 did not come within 200 ms");
    EXPECT_EQ(engine.error()->code(), Code::timeout);
    const auto flights = engine.flight_record();
    EXPECT_EQ(flights.size(), 1u);
    const auto waited = [&](const LogLine& line) {
      return line.message.find(text("rank ", r, ": gang.all_reduce #0, 4 bytes, from ")) == 0 &&
             line.message.find(": waiting for ranks 1, 3") != std::string::npos;
    };
    const std::vector<LogLine> lines = log_lines(0);
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), waited))
        << "the ring was not written; the last line: " << lines.back().message;
    EXPECT_NE(flights.at(0).state.find("failed"), std::string::npos);
    all.come();
  });
}

TEST(HostFailure, AWaitThatRunsOutIsHarmless) {
  ThreadRanks ranks(2);
  Meeting looked(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    float x = 1;
    const Collective c = sum_in_place(&x, 1);
    if (r == 1) looked.come();
    const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
    if (r == 0) {
      EXPECT_FALSE(work->poll());
      const Error error = error_of([&] { work->wait(Deadline::after_ms(20)); });
      EXPECT_EQ(error.code(), Code::not_ready);
      EXPECT_EQ(engine.flight_record()[0].state, "waiting for rank 1");
      looked.come();
    }
    work->wait(Deadline::never());
    EXPECT_EQ(x, 2);
    EXPECT_FALSE(engine.error());
  });
}

TEST(HostFailure, AnInterruptEndsTheWaitAlone) {
  ThreadRanks ranks(2);
  Meeting interrupted(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    float x = 1;
    const Collective c = sum_in_place(&x, 1);
    if (r == 1) interrupted.come();
    const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
    if (r == 0) {
      set_interrupt([](void*) { return 1; }, nullptr, nullptr);
      EXPECT_EQ(error_of([&] { work->wait(Deadline::never()); }).code(), Code::caller);
      set_interrupt(nullptr, nullptr, nullptr);
      interrupted.come();
    }
    work->wait(Deadline::never());
    EXPECT_EQ(x, 2);
  });
}

TEST(HostFailure, AnAbortWakesEveryone) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      engine.abort(Error(Code::aborted, "enough"));
      EXPECT_EQ(engine.error()->message(), "enough");
      return;
    }
    float x = 1;
    const Error error = error_of([&] { now(engine, sum_in_place(&x, 1), stream); });
    EXPECT_EQ(error.code(), Code::aborted);
    EXPECT_EQ(error.message(), "gang: aborted by rank 2: enough");
    EXPECT_EQ(error.peer, 2);
    // Every later call has the first error.
    EXPECT_EQ(error_of([&] { now(engine, sum_in_place(&x, 1), stream); }).message(), error.message());
  });
}

TEST(HostFailure, ARankThatReleasesItsEngineIsLost) {
  ThreadRanks ranks(3);
  std::vector<std::shared_ptr<Engine>> engines = std::move(ranks.engines);
  Meeting survivors(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r, engine = std::move(engines[r])]() mutable {
      Stream& stream = ranks.ranks[r]->device().stream();
      float x = 1;
      now(*engine, sum_in_place(&x, 1), stream);
      if (r == 1) {
        engine.reset();
        return;
      }
      const Error error = error_of([&] { now(*engine, sum_in_place(&x, 1), stream); });
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_EQ(error.peer, 1);
      EXPECT_NE(error.message().find("gang.all_reduce #1: rank 1 ("), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("left without shutdown; ranks 0, 2 are alive"), std::string::npos)
          << error.message();
      survivors.come();
    });
  for (std::thread& t : threads) t.join();
}

TEST(HostFailure, AMessageThatARankSentBeforeItLeftArrivesWhole) {
  for (const size_t count :
       {size_t{1}, size_t{196'608}, size_t{458'752}}) {  // in a slot; 12 and 28 pieces of a ring
    ThreadRanks ranks(2);
    Meeting posted(2), left(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      std::vector<float> x(count, static_cast<float>(r));
      Collective c;
      c.op = r == 1 ? CollectiveOp::send : CollectiveOp::recv;
      c.reduce = Reduce::none;
      c.in = r == 1 ? x.data() : nullptr;
      c.out = r == 1 ? nullptr : x.data();
      c.count = count;
      c.peer = 1 - r;
      WorkPtr work;
      if (r == 0) work = engine.run(Channel::user, {&c, 1}, stream);
      posted.come();
      if (r == 1) {
        now(engine, c, stream);
        ranks.engines[1].reset();
      }
      left.come();
      if (r == 0) work->wait(Deadline::after_ms(20'000));
      EXPECT_EQ(x, std::vector<float>(count, 1));
    });
  }
}

TEST(HostFailure, ShutdownIsCollectiveAndFinal) {
  ThreadRanks ranks(4);
  ranks.run([&](int r, Engine& engine) {
    if (r == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    engine.shutdown(Deadline::after_ms(10'000));
    float x = 0;
    EXPECT_EQ(error_of([&] {
                now(engine, sum_in_place(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
              }).code(),
              Code::invalid_state);
  });
}

TEST(HostFailure, AShutdownThatRunsOutNamesWhoIsMissing) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    if (r == 1) return;
    const Error error = error_of([&] { engine.shutdown(Deadline::after_ms(50)); });
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_EQ(error.message(), "gang.shutdown: rank 1 did not come in time");
  });
}

}  // namespace
}  // namespace gangway::test
