// What the host engine does when ranks differ, leave, stop or abort; ranks as threads.
#include <atomic>
#include <chrono>
#include <functional>

#include "base/interrupt.h"
#include "base/log.h"
#include "gang/host/member.h"
#include "gang/host_reference.h"
#include "gang/host_threads.h"

namespace gangway::test {
namespace {

Collective reduction(float* x, size_t count) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = c.out = x;
  c.count = count;
  return c;
}

// The error of what `call` does; none: code ok.
Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

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
  large.count = 100000;
  cases.push_back({"root of a large one", large, large, "(100000 f32, root 1)"});
  cases.back().second.peer = 1;
  Collective all = sum;
  all.count = 100000;
  Collective other = large;
  cases.push_back({"large ones", all, other, "meets"});
  return cases;
}

TEST(HostFailure, CallsThatWaitForASlotGoBeforeTheShutdown) {
  constexpr int kCalls = 20;  // more than a pair or a channel has slots
  for (const CollectiveOp op : {CollectiveOp::send, CollectiveOp::all_reduce}) {
    ThreadRanks ranks(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      std::vector<float> x(kCalls, static_cast<float>(r + 1));
      std::vector<WorkPtr> works;
      for (float& one : x) {
        Collective c = reduction(&one, 1);
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

TEST(HostFailure, DifferentCallsAreAMismatchOnEveryRank) {
  for (const Case& test : mismatches())
    for (const int first : {0, 1}) {  // who comes first
      ThreadRanks ranks(3);
      std::vector<Error> errors(3, Error(Code::ok, ""));
      ranks.run([&](int r, Engine& engine) {
        std::vector<float> in(400000), out(400000);
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
      // The text is told from the side of whoever saw it first.
      const bool told_from_the_other =
          std::string(test.what) == "op" && errors[0].message().find(".all_gather") == std::string::npos;
      EXPECT_TRUE(told_from_the_other || errors[0].message().find(test.part) != std::string::npos)
          << test.what << ": " << errors[0].message();
    }
}

TEST(HostFailure, SendAndReceiveOfAnotherSizeAreAMismatch) {
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
    const Collective c = reduction(&x, 1);
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
    const Collective c = reduction(&x, 1);
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
    const Collective c = reduction(&x, 1);
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
    const Error error = error_of([&] { now(engine, reduction(&x, 1), stream); });
    EXPECT_EQ(error.code(), Code::aborted);
    EXPECT_EQ(error.message(), "gang: aborted by rank 2: enough");
    EXPECT_EQ(error.peer, 2);
    // Every later call has the first error.
    EXPECT_EQ(error_of([&] { now(engine, reduction(&x, 1), stream); }).message(), error.message());
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
      now(*engine, reduction(&x, 1), stream);
      if (r == 1) {
        engine.reset();
        return;
      }
      const Error error = error_of([&] { now(*engine, reduction(&x, 1), stream); });
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_EQ(error.peer, 1);
      EXPECT_NE(error.message().find("gang.all_reduce #1: rank 1 ("), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("left without shutdown; ranks 0, 2 are alive"), std::string::npos)
          << error.message();
      survivors.come();
    });
  for (std::thread& t : threads) t.join();
}

TEST(HostFailure, ACallThatMeetsAShutdownIsAMismatch) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    float x = 1;
    const Error error = error_of([&] {
      if (r == 0) {
        engine.shutdown(Deadline::never());
      } else {
        now(engine, reduction(&x, 1), ranks.ranks[1]->device().stream());
      }
    });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_EQ(
        error.message(),
        "gang.all_reduce #0 of rank 1 (1 f32) meets shutdown of rank 0: ranks called different collectives");
  });
}

TEST(HostFailure, ShutdownIsCollectiveAndFinal) {
  ThreadRanks ranks(4);
  ranks.run([&](int r, Engine& engine) {
    if (r == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    engine.shutdown(Deadline::after_ms(10'000));
    float x = 0;
    EXPECT_EQ(error_of([&] {
                now(engine, reduction(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
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

TEST(HostFailure, CallsOfTwoGangsThatWaitForEachOtherAreNamed) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& root) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    const std::vector<int> both{0, 1};
    const auto a = root.create(both), b = root.create(both);
    float x[4] = {1, 1, 1, 1};
    const Error error =
        error_of([&] { now(r == 0 ? *a : *b, reduction(x, static_cast<size_t>(3 + r)), stream); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("all_reduce #0 of rank 0 (3 f32) for rank 1"), std::string::npos)
        << error.message();
    EXPECT_NE(error.message().find("all_reduce #0 of rank 1 (4 f32) for rank 0"), std::string::npos)
        << error.message();
    now(root, reduction(x, 1), stream);  // the parent is whole
  });
}

TEST(HostFailure, ASendThatMeetsACollectiveIsNamed) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<float> x(10000);
    Collective c = reduction(x.data(), 10000);
    if (r == 0) {
      c.op = CollectiveOp::recv;
      c.reduce = Reduce::none;
      c.peer = 1;
    }
    EXPECT_EQ(error_of([&] { now(engine, c, stream); }).code(), Code::mismatch);
  });
}

TEST(HostFailure, TheSurvivorsOfABrokenGangGoOn) {
  ThreadRanks ranks(4);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 1) {
      engine.abort(Error(Code::aborted, "rank 1 is out"));
      return;
    }
    float x = 1;
    EXPECT_EQ(error_of([&] { now(engine, reduction(&x, 1), stream); }).code(), Code::aborted);
    std::vector<int> survivors{3, 0, 2};
    const auto rest = engine.shrink(survivors);
    EXPECT_EQ(rest->size(), 3);
    EXPECT_EQ(rest->rank(), r == 3 ? 0 : r == 0 ? 1 : 2);
    x = static_cast<float>(r);
    now(*rest, reduction(&x, 1), stream);
    EXPECT_EQ(x, 5);
    rest->shutdown(Deadline::never());
  });
}

TEST(HostFailure, AShrinkThatIsTriedAgainLeadsToTheBoardThatOthersHaveTaken) {
  EngineOptions options = small_arena();
  options.timeout_ms = 2000;
  ThreadRanks ranks(3, options);
  Meeting two(2);
  ranks.run([&](int r, Engine& engine) {
    if (r == 1) return engine.abort(Error(Code::aborted, "rank 1 is out"));
    std::vector<int> survivors{0, 2};
    float x = 1;
    EXPECT_EQ(error_of([&] {
                now(engine, reduction(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
              }).code(),
              Code::aborted);
    std::shared_ptr<Engine> rest;
    if (r == 0) {
      EXPECT_EQ(error_of([&] { engine.shrink(survivors); }).message(),
                "gang.shrink: rank 2 did not come within 2000 ms");
      two.come();
      two.come();
      rest = engine.shrink(survivors);
    } else {
      two.come();
      rest = engine.shrink(survivors);
      two.come();
    }
    const auto sums = [&](Engine& gang) {
      x = 1;
      now(gang, reduction(&x, 1), ranks.ranks[static_cast<size_t>(r)]->device().stream());
      EXPECT_EQ(x, 2);
    };
    two.come();
    sums(*rest);
    two.come();
    rest->abort(Error(Code::aborted, "once more"));
    rest.reset();
    sums(*engine.shrink(survivors));  // a board that all have taken is not offered again
  });
}

TEST(HostFailure, ListsOfSurvivorsThatDifferAreToldToAllWithBoth) {
  EngineOptions options = small_arena();
  ThreadRanks ranks(4, options);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    if (r == 1) return engine.abort(Error(Code::aborted, "rank 1 is out"));
    float x = 1;
    EXPECT_EQ(error_of([&] { now(engine, reduction(&x, 1), stream); }).code(), Code::aborted);
    if (r == 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others have been told by then
    std::vector<int> survivors = r == 3 ? std::vector<int>{0, 3} : std::vector<int>{0, 2, 3};
    const auto begin = std::chrono::steady_clock::now();
    const Error error = error_of([&] { engine.shrink(survivors); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    for (const char* const words : {"rank 3", "ranks 0, 3", "ranks 0, 2, 3"})
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "not by the deadline";
  });
}

TEST(HostFailure, ARankThatLeavesWhileTheOthersShrinkIsPassedOver) {
  for (int round = 0; round < 20; ++round) {
    ThreadRanks ranks(5);
    std::atomic<int> said{0};
    ranks.run([&](int r, Engine& engine) {
      const size_t at = static_cast<size_t>(r);
      Stream& stream = ranks.ranks[at]->device().stream();
      if (r == 1) return engine.abort(Error(Code::aborted, "rank 1 is out"));
      float x = 1;
      EXPECT_EQ(error_of([&] { now(engine, reduction(&x, 1), stream); }).code(), Code::aborted);
      if (r == 3) {  // it does not ask, while the others wait for it
        while (said.load() < round % 4) std::this_thread::yield();
        ranks.engines[at].reset();
        return;
      }
      ++said;
      std::vector<int> survivors{0, 2, 3, 4};
      const auto rest = engine.shrink(survivors);
      EXPECT_EQ(survivors, (std::vector<int>{0, 2, 4}));
      x = 1;
      now(*rest, reduction(&x, 1), stream);
      EXPECT_EQ(x, 3);
      rest->shutdown(Deadline::after_ms(60'000));
    });
  }
}

TEST(HostFailure, AFenceWaitsForItsOwner) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    const SharedRegion region = engine.shared_memory()->allocate(4096);
    auto& counter = *static_cast<std::atomic<uint64_t>*>(region.writable->data());
    EXPECT_EQ(counter.load(), 0u);
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      engine.shared_memory()->publish(counter, 1);
    } else {
      engine.shared_memory()->wait(counter, 1, 0, "ready");
    }
    Collective barrier;
    now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
  });
}

// A thread rank leaves by ending: also who waits for no call of it is told, before the deadline.
TEST(HostFailure, AnEndedThreadIsLostToAFenceAndToAShutdown) {
  for (const bool fence : {true, false}) {
    ThreadRanks ranks(2);
    Meeting both(2);
    ranks.run([&](int r, Engine& engine) {
      const SharedRegion region = engine.shared_memory()->allocate(4096);
      auto& counter = *static_cast<std::atomic<uint64_t>*>(region.writable->data());
      both.come();
      if (r == 1) return;
      const Error error = error_of([&] {
        if (fence)
          engine.shared_memory()->wait(counter, 1, 1, "ready");
        else
          engine.shutdown(Deadline::never());
      });
      EXPECT_EQ(error.code(), Code::peer_lost) << error.message();
      EXPECT_EQ(error.peer, 1);
      EXPECT_NE(error.message().find(", its thread ended; rank 0 is alive"), std::string::npos)
          << error.message();
    });
  }
}

// Also one that ended before the wait began.
TEST(HostFailure, AnEndedThreadIsLostToItsPeersWithinATenthOfASecond) {
  for (const int late_ms : {0, 200}) {
    ThreadRanks ranks(3);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      float x = 1;
      now(engine, reduction(&x, 1), stream);
      if (r == 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
      const int64_t begun_ns = host::now_ns();
      const Error error = error_of([&] { now(engine, reduction(&x, 1), stream); });
      EXPECT_EQ(error.code(), Code::peer_lost) << error.message();
      const double ms = static_cast<double>(host::now_ns() - begun_ns) / 1e6;
      std::printf("told after %.1f ms\n", ms);
      EXPECT_LT(ms, 1000) << "100 on a machine that is not busy";
    });
  }
}

// Its last thread ended longer ago than peers have patience, and the next one comes a little later than they do.
TEST(HostFailure, ARankWhoseNextThreadIsOnItsWayIsNotLost) {
  EngineOptions options = small_arena();
  options.timeout_ms = 6000;
  ThreadRanks ranks(2, options);
  const auto meet = [&](int r, Engine& engine) {
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    now(engine, Collective{}, ranks.ranks[static_cast<size_t>(r)]->device().stream());
  };
  ranks.run(meet);
  std::this_thread::sleep_for(std::chrono::milliseconds(options.timeout_ms / 2 + 100));
  ranks.run(meet);
}

TEST(HostFailure, AFenceThatNobodyPublishesTimesOutAndNamesItsOwner) {
  EngineOptions options = small_arena();
  options.timeout_ms = 1000;
  ThreadRanks ranks(2, options);
  Meeting both(2);
  ranks.run([&](int r, Engine& engine) {
    both.come();  // the set-up has the same deadline
    const SharedRegion region = engine.shared_memory()->allocate(4096);
    auto& counter = *static_cast<std::atomic<uint64_t>*>(region.writable->data());
    if (r == 1) {
      const Error error = error_of([&] { engine.shared_memory()->wait(counter, 2, 0, "ready"); });
      EXPECT_EQ(error.code(), Code::timeout);
      EXPECT_EQ(error.message(), "gang.ready: rank 0 did not come within 1000 ms");
    }
    both.come();
  });
}

}  // namespace
}  // namespace gangway::test
