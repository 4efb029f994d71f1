// Works of the host engine that are in flight together: order, both ends, crossed gangs, sub-gangs, counters.
#include <atomic>
#include <chrono>

#include "base/expect_error.h"
#include "gang/host/input.h"

namespace gangway::test {
namespace {

Collective reduction(const float* in, float* out, size_t count) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = in;
  c.out = out;
  c.count = count;
  return c;
}

struct Floats {
  std::shared_ptr<Buffer> buffer;
  float* data;
  size_t count;
  Floats(const std::shared_ptr<Allocator>& from, size_t n, float value)
      : buffer(Buffer::allocate(from, n * 4)), data(static_cast<float*>(buffer->data())), count(n) {
    std::fill(data, data + n, value);
  }
};

TEST(HostAsync, TwoGangsInCrossedOrderWorkInBothWaitOrders) {
  for (const int size : {2, 3, 4})
    for (const size_t count : {size_t{1}, size_t{2000}, size_t{200'000}})
      for (const bool inside : {false, true}) {
        ThreadRanks ranks(size);
        ranks.run([&](int r, Engine& root) {
          Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
          std::vector<int> all(static_cast<size_t>(size)), turned;
          for (int i = 0; i < size; ++i) all[static_cast<size_t>(i)] = i;
          turned.assign(all.rbegin(), all.rend());
          const auto a = root.create(all, "a"), b = root.create(turned, "b");
          const auto from = inside ? root.shared_memory()->allocator()
                                   : ranks.ranks[static_cast<size_t>(r)]->device().allocator();
          for (const bool swap : {false, true}) {
            Floats x(from, count, 1), y(from, count, 10);
            const Collective cx = reduction(x.data, x.data, count), cy = reduction(y.data, y.data, count);
            // Odd ranks start and wait in the other order.
            const bool first_a = r % 2 == 0;
            Engine& one = first_a ? *a : *b;
            Engine& two = first_a ? *b : *a;
            const WorkPtr w1 = one.run(Channel::user, {first_a ? &cx : &cy, 1}, stream);
            const WorkPtr w2 = two.run(Channel::user, {first_a ? &cy : &cx, 1}, stream);
            (swap ? w2 : w1)->wait_input(Deadline::never());
            (swap ? w1 : w2)->wait_input(Deadline::never());
            for (size_t k = 0; k < count; ++k) {
              ASSERT_EQ(x.data[k], static_cast<float>(size));
              ASSERT_EQ(y.data[k], static_cast<float>(10 * size));
            }
          }
        });
      }
}

TEST(HostAsync, AStartNeverWaitsForPeers) {
  ThreadRanks ranks(2);
  std::atomic<bool> started{false};
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<std::vector<float>> x(40, std::vector<float>(3000, 1));  // more than the board has slots
    if (r == 1)
      while (!started.load()) std::this_thread::yield();
    std::vector<WorkPtr> works;
    for (auto& v : x) {
      const Collective c = reduction(v.data(), v.data(), v.size());
      works.push_back(engine.run(Channel::user, {&c, 1}, stream));
    }
    if (r == 0) {
      EXPECT_FALSE(works.back()->poll());
      started.store(true);
    }
    for (size_t i = works.size(); i-- > 0;) works[i]->wait_input(Deadline::never());
    for (const auto& v : x)
      for (const float value : v) ASSERT_EQ(value, 2);
  });
}

TEST(HostAsync, AnInputIsReadUntilItIsReusableAndNoLonger) {
  for (const int size : {2, 3}) {
    ThreadRanks ranks(size);
    Meeting all(size);
    ranks.run([&](int r, Engine& engine) {
      for (const bool inside : {false, true, r % 2 == 0})
        ReusedInputs(engine, ranks.ranks[static_cast<size_t>(r)]->device(), inside, all).check_all();
    });
  }
}

// Rank 0 comes to the call, fails, and has its input back before rank 1 has read it.
TEST(HostAsync, ACallThatAPeerAbandonedGivesNoResult) {
  for (const CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter, CollectiveOp::reduce,
                                CollectiveOp::all_gather, CollectiveOp::broadcast, CollectiveOp::gather,
                                CollectiveOp::scatter, CollectiveOp::all_to_all, CollectiveOp::recv}) {
    ThreadRanks ranks(2);
    Meeting both(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      constexpr size_t kCount = 5000;
      Floats in(engine.shared_memory()->allocator(), 2 * kCount, 1),
          out(engine.shared_memory()->allocator(), 2 * kCount, 0);
      Collective c;
      c.op = op == CollectiveOp::recv && r == 0 ? CollectiveOp::send : op;
      c.in = in.data;
      c.out = out.data;
      c.count = kCount;
      c.async_input = true;
      c.peer = op == CollectiveOp::broadcast || op == CollectiveOp::scatter ? 0
               : op == CollectiveOp::recv                                   ? 1 - r
                                                                            : 1;
      if (op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter || op == CollectiveOp::reduce)
        c.reduce = Reduce::sum;
      if (r == 1) {
        const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
        both.come();
        both.come();
        const Error error = error_of([&] { work->wait(Deadline::never()); });
        EXPECT_EQ(error.code(), Code::aborted) << name(op) << ": " << error.message();
      } else {
        both.come();
        const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
        engine.abort(Error(Code::aborted, "rank 0 gives up"));
        std::fill_n(in.data, in.count, 7.0f);
        both.come();
      }
    });
  }
}

TEST(HostAsync, BorrowGivesTheOutputBeforeTheInput) {
  ThreadRanks ranks(2);
  std::atomic<int> stage{0};
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    Floats x(engine.shared_memory()->allocator(), 50'000, static_cast<float>(r));
    Collective c;
    c.op = CollectiveOp::broadcast;
    c.peer = 0;
    c.in = c.out = x.data;
    c.count = x.count;
    c.async_input = true;
    if (r == 0) {
      const WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
      work->wait(Deadline::never());  // nobody has read it
      EXPECT_EQ(stage.load(), 0);
      EXPECT_EQ(
          [&] {
            try {
              work->wait_input(Deadline::after_ms(5));
            } catch (const Error& error) {
              return error.code();
            }
            return Code::ok;
          }(),
          Code::not_ready);
      stage.store(1);
      work->wait_input(Deadline::never());
    } else {
      while (stage.load() == 0) std::this_thread::yield();
      now(engine, c, stream);
      EXPECT_EQ(x.data[49'999], 0);
    }
  });
}

TEST(HostAsync, ChannelsDoNotMeet) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    float x = 1, y = 10;
    const Collective cx = reduction(&x, &x, 1), cy = reduction(&y, &y, 1);
    WorkPtr a, b;
    if (r == 1) {
      b = engine.run(Channel::tp, {&cy, 1}, stream);
      a = engine.run(Channel::user, {&cx, 1}, stream);
    } else {
      a = engine.run(Channel::user, {&cx, 1}, stream);
      b = engine.run(Channel::tp, {&cy, 1}, stream);
    }
    a->wait(Deadline::never());
    b->wait(Deadline::never());
    EXPECT_EQ(x, 3);
    EXPECT_EQ(y, 30);
  });
}

TEST(HostAsync, SubGangsHaveTheOrderOfTheirList) {
  ThreadRanks ranks(4);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    const std::vector<int> even{2, 0}, odd{1, 3};
    const auto half =
        engine.create(r % 2 == 0 ? even : odd, "half");  // two lists in one call, as a split needs
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(half->rank(), r == 2 || r == 1 ? 0 : 1);
    EXPECT_EQ(half->size(), 2);
    const int mine = r;
    int both[2] = {-1, -1};
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.dtype = DType::i32;
    c.count = 1;
    c.in = &mine;
    c.out = both;
    now(*half, c, stream);
    EXPECT_EQ(both[0], r % 2 == 0 ? 2 : 1);
    EXPECT_EQ(both[1], r % 2 == 0 ? 0 : 3);
    const std::vector<int> three{3};
    const auto single = engine.create(three, "three");
    EXPECT_EQ(single == nullptr, r != 3);
    half->abort(Error(Code::aborted, "done with it"));
    float x = 1;
    now(engine, reduction(&x, &x, 1), stream);  // the parent has its own state
    EXPECT_EQ(x, 4);
  });
}

// Blocking calls end without a queue when nothing is outstanding, and behind the others when something is.
TEST(HostAsync, ShortBlockingCallsBetweenAsynchronousOnesKeepTheirOrder) {
  ThreadRanks ranks(3);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    constexpr size_t kLong = 50'000;
    std::vector<float> in(kLong), out(kLong);
    for (int i = 0; i < 100; ++i) {
      std::fill(in.begin(), in.end(), static_cast<float>(r + i));
      const Collective c = reduction(in.data(), out.data(), kLong);
      WorkPtr work;
      if (i % 3 == 0) work = engine.run(Channel::user, {&c, 1}, stream);
      for (int k = 0; k < 20; ++k) {  // more than a channel has slots
        float x = static_cast<float>(r * 20 + k);
        now(engine, reduction(&x, &x, 1), stream, k % 4 == 0 ? Channel::control : Channel::user);
        ASSERT_EQ(x, static_cast<float>(60 + 3 * k));
      }
      if (work == nullptr) continue;
      work->wait_input(Deadline::never());
      ASSERT_EQ(out[kLong - 1], static_cast<float>(3 + 3 * i));
    }
  });
}

TEST(HostAsync, ArenaTensorsAreNotStaged) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    constexpr size_t kCount = 100'000;
    for (const bool inside : {true, false}) {
      const Traffic before = engine.traffic();
      Floats x(inside ? engine.shared_memory()->allocator()
                      : ranks.ranks[static_cast<size_t>(r)]->device().allocator(),
               kCount, 1);
      now(engine, reduction(x.data, x.data, kCount), stream);
      const Traffic after = engine.traffic();
      EXPECT_EQ(after.calls - before.calls, 1u);
      EXPECT_EQ(after.bytes_moved - before.bytes_moved, kCount * 4);
      EXPECT_EQ(after.bytes_staged - before.bytes_staged, inside ? 0 : kCount * 2);  // what the peer folds
      EXPECT_EQ(x.data[kCount - 1], 2);
    }
  });
}

TEST(HostAsync, TheFlightRecordHasTheLastCalls) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    float x = 1;
    for (int i = 0; i < 100; ++i) now(engine, reduction(&x, &x, 1), stream);
    const auto flights = engine.flight_record();
    ASSERT_EQ(flights.size(), 64u);
    EXPECT_EQ(flights.back().sequence, 99u);
    EXPECT_EQ(flights.back().op, CollectiveOp::all_reduce);
    EXPECT_EQ(flights.back().bytes, 4u);
    EXPECT_EQ(flights.back().state, "done");
    EXPECT_GE(flights.back().end_ns, flights.back().start_ns);
    EXPECT_GT(flights.back().start_ns, flights.front().start_ns);
  });
}

TEST(HostAsync, AWorkOutlivesItsEngine) {
  ThreadRanks ranks(2);
  std::vector<std::shared_ptr<Engine>> engines = std::move(ranks.engines);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r, engine = std::move(engines[r])]() mutable {
      std::vector<float> x(100'000, 1);
      const Collective c = reduction(x.data(), x.data(), x.size());
      const WorkPtr work = engine->run(Channel::user, {&c, 1}, ranks.ranks[r]->device().stream());
      engine.reset();
      work->wait_input(Deadline::never());
      EXPECT_EQ(x[99'999], 2);
    });
  for (std::thread& t : threads) t.join();
}

// Of the calls behind one that still reads a staging area, none may take it before those in front of it.
TEST(HostAsync, StagedCallsInFlightKeepTheirOrder) {
  constexpr size_t kCount = 160'000;  // ten chunks: four messages in flight are more than a ring holds
  constexpr int kFlight = 6;
  for (const CollectiveOp op : {CollectiveOp::broadcast, CollectiveOp::gather, CollectiveOp::send}) {
    ThreadRanks ranks(2);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      const bool giver = r == 0;
      std::vector<std::vector<float>> in(kFlight), out(kFlight);
      for (int round = 0; round < 50; ++round) {
        std::vector<WorkPtr> works;
        for (size_t i = 0; i < kFlight; ++i) {
          const float value = static_cast<float>(round * kFlight) + static_cast<float>(i);
          in[i].assign(kCount, giver ? value : -1);
          out[i].assign(2 * kCount, -2);
          Collective c;
          c.op = op == CollectiveOp::send && !giver ? CollectiveOp::recv : op;
          c.in = c.op == CollectiveOp::recv ? nullptr : in[i].data();
          c.out = c.op == CollectiveOp::send ? nullptr : out[i].data();
          c.count = kCount;
          c.peer = op == CollectiveOp::broadcast ? 0 : op == CollectiveOp::gather ? 1 : 1 - r;
          works.push_back(engine.run(Channel::user, {&c, 1}, stream));
        }
        for (size_t i = 0; i < kFlight; ++i) {
          works[i]->wait_input(Deadline::never());
          if (giver) continue;
          const float value = static_cast<float>(round * kFlight) + static_cast<float>(i);
          for (size_t k = 0; k < kCount; ++k)
            ASSERT_EQ(out[i][k], value) << name(op) << " round " << round << " call " << i << " at " << k;
        }
      }
    });
  }
}

TEST(HostAsync, WorksThatNobodyHoldsEndAllTheSame) {
  constexpr size_t kDropped = 200, kHeld = 50;
  ThreadRanks ranks(2);
  std::atomic<bool> started{false};
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<float> x(kDropped + kHeld, 1), y(kDropped + kHeld, 0);
    std::vector<WorkPtr> held;
    if (r == 1)
      while (!started) std::this_thread::yield();
    for (size_t i = 0; i < x.size(); ++i) {
      const Collective c = reduction(&x[i], &y[i], 1);
      WorkPtr work = engine.run(Channel::user, {&c, 1}, stream);
      if (i >= kDropped) held.push_back(std::move(work));
    }
    if (r == 0) {
      for (const WorkPtr& work : held) EXPECT_FALSE(work->poll());
      started = true;
    }
    for (size_t i = 0; i < kHeld; ++i) {
      held[i]->wait_input(Deadline::after_ms(20'000));
      ASSERT_EQ(y[kDropped + i], 2);
    }
    for (const float sum : y) ASSERT_EQ(sum, 2);
  });
}

TEST(HostAsync, SeveralThreadsOfARankMayWait) {
  ThreadRanks ranks(2);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<std::thread> threads;
    for (const Channel channel : {Channel::user, Channel::tp, Channel::cp})
      threads.emplace_back([&, channel] {
        std::vector<float> x(5000);
        for (int i = 0; i < 50; ++i) {
          std::fill(x.begin(), x.end(), 1);
          now(engine, reduction(x.data(), x.data(), x.size()), stream, channel);
          ASSERT_EQ(x[4999], 2);
        }
      });
    for (std::thread& t : threads) t.join();
  });
}

}  // namespace
}  // namespace gangway::test
