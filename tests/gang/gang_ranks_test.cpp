// A gang's own logic over several ranks (threads): agreement, creation, bytes, ends.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include "base/expect_error.h"
#include "base/interrupt.h"
#include "gang/agreement.h"
#include "gang/thread_ranks.h"

namespace gangway {
namespace {

using test::error_of;
using test::run_ranks;
using Members = std::vector<int>;

TEST(GangRanks, TheLowestRefusalComesBackOnEveryRankAndTheGangWorksOn) {
  run_ranks(4, [](Gang& root) {
    for (int lowest = 0; lowest < 4; ++lowest) {
      const Error error = error_of([&] {
        root.agreement().agree_on([&] {
          if (root.rank() >= lowest)
            fail(Code::not_supported, "rank ", root.rank(), " does not like ", lowest);
        });
      });
      EXPECT_EQ(error.code(), Code::not_supported);
      EXPECT_EQ(error.message(), text("rank ", lowest, " does not like ", lowest));
      EXPECT_EQ(error.rank, lowest);
      EXPECT_EQ(error.gang, "gang");
      EXPECT_EQ(root.agreement().all_sum(Channel::user, 1), 4);
    }
    EXPECT_NO_THROW(root.agreement().agree(std::nullopt, "the same"));
  });
}

TEST(GangRanks, OneRanksBadListIsRefusedOnAllRanks) {
  run_ranks(3, [](Gang& root) {
    const Error error = error_of([&] { root.create_gang(root.rank() == 1 ? Members{0, 3} : Members{0, 2}); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_EQ(error.message(), "gang.create_gang: rank 3 is outside [0, 3)");
    EXPECT_EQ(error.rank, 1);
    EXPECT_EQ(root.agreement().all_sum(Channel::control, 1), 3);
  });
}

TEST(GangRanks, DifferentListsAreAMismatchWithBothTextsAndTheGangWorksOn) {
  run_ranks(3, [](Gang& root) {
    const Error error = error_of([&] { root.create_gang(root.rank() == 2 ? Members{0, 1} : Members{1, 0}); });
    EXPECT_EQ(error.code(), Code::mismatch);
    EXPECT_EQ(error.message(),
              "gang \"gang\": rank 0 asked for a gang of [1, 0], but rank 2 for a gang of [0, 1]");
    EXPECT_EQ(root.agreement().all_sum(Channel::control, 1), 3);
  });
}

TEST(GangRanks, TheListsOrderIsTheOrderOfRanks) {
  run_ranks(4, [](Gang& root) {
    const GangPtr child = root.create_gang(Members{3, 0, 2});
    ASSERT_EQ(child == nullptr, root.rank() == 1);
    if (!child) return;
    const int place[] = {1, -1, 2, 0};
    EXPECT_EQ(child->rank(), place[root.rank()]);
    EXPECT_EQ(child->members(), (Members{3, 0, 2}));
    const std::vector<std::string> all =
        child->agreement().all_gather_bytes(Channel::user, std::to_string(root.rank()));
    EXPECT_EQ(all, (std::vector<std::string>{"3", "0", "2"}));
    const GangPtr pair = child->create_gang(Members{2, 0});
    if (pair) {
      EXPECT_EQ(pair->members(), (Members{2, 3}));
      EXPECT_EQ(pair->agreement().all_sum(Channel::user, root.rank()), 5);
    }
  });
}

TEST(GangRanks, AGangOfOneMemberIsTheSelfEngine) {
  run_ranks(3, [](Gang& root) {
    const GangPtr one = root.create_gang(Members{1});
    ASSERT_EQ(one != nullptr, root.rank() == 1);
    if (one) {
      EXPECT_STREQ(one->engine_name(), "self");
      EXPECT_EQ(one->members(), Members{1});
    }
    EXPECT_EQ(root.alone()->members(), Members{root.rank()});
  });
}

TEST(GangRanks, SplitOrdersByKeyThenRank) {
  run_ranks(7, [](Gang& root) {
    const int r = root.rank();
    const GangPtr child = root.split(r == 6 ? -1 : r % 2, r < 2 ? 1 : 0);
    ASSERT_EQ(child == nullptr, r == 6);
    if (child) {
      EXPECT_EQ(child->members(), (r % 2 == 0 ? Members{2, 4, 0} : Members{3, 5, 1}));
      EXPECT_EQ(child->agreement().all_sum(Channel::user, r), r % 2 == 0 ? 6 : 9);
    }
    const GangPtr alone = root.split(r, 0);
    EXPECT_EQ(alone->size(), 1);
  });
}

TEST(GangRanks, ADuplicateHasTrafficAndAbortOfItsOwn) {
  run_ranks(3, [](Gang& root) {
    const GangPtr twin = root.duplicate("twin");
    EXPECT_EQ(twin->name(), "twin");
    EXPECT_EQ(twin->members(), root.members());
    // Crossed order on the two.
    double a = 1, b = 10;
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.count = 1;
    c.dtype = DType::f64;
    c.reduce = Reduce::sum;
    Collective d = c;
    c.in = c.out = &a;
    d.in = d.out = &b;
    WorkPtr first = root.rank() == 0 ? root.run(Channel::user, c) : twin->run(Channel::user, d);
    WorkPtr second = root.rank() == 0 ? twin->run(Channel::user, d) : root.run(Channel::user, c);
    second->wait(Deadline::never());
    first->wait(Deadline::never());
    EXPECT_EQ(a, 3);
    EXPECT_EQ(b, 30);
    root.barrier();
    twin->abort("only the twin");
    EXPECT_EQ(error_of([&] { twin->barrier(); }).code(), Code::aborted);
    EXPECT_EQ(root.agreement().all_sum(Channel::user, 1), 3);
  });
}

TEST(GangRanks, BytesOfDifferentSizesArrive) {
  run_ranks(4, [](Gang& root) {
    const auto of = [](int r) {
      return std::string(static_cast<size_t>(r * r * 1000), static_cast<char>('a' + r));
    };
    const std::vector<std::string> all = root.agreement().all_gather_bytes(Channel::user, of(root.rank()));
    for (int r = 0; r < 4; ++r) EXPECT_EQ(all[static_cast<size_t>(r)], of(r));
    for (int r = 0; r < 4; ++r)
      EXPECT_EQ(root.agreement().broadcast_bytes(Channel::user, root.rank() == r ? of(r) : "ignored", r),
                of(r));
    EXPECT_EQ(root.agreement().all_gather_bytes(Channel::user, ""), std::vector<std::string>(4));
  });
}

TEST(GangRanks, ASharedRegionIsOneMemoryAndItsSizeIsAgreed) {
  run_ranks(4, [](Gang& root) {
    const SharedRegion region = root.allocate_shared(4 * 64);
    char* data = static_cast<char*>(region.writable->data());
    EXPECT_EQ(data[root.rank() * 64], 0);
    root.barrier();
    data[root.rank() * 64] = static_cast<char>(root.rank() + 1);
    root.barrier();
    for (int r = 0; r < 4; ++r) EXPECT_EQ(static_cast<const char*>(region.readable->data())[r * 64], r + 1);
    EXPECT_TRUE(region.readable->read_only());
    const Error error = error_of([&] { root.allocate_shared(root.rank() == 3 ? 64 : 128); });
    EXPECT_EQ(error.code(), Code::mismatch);
    EXPECT_EQ(error.message(),
              "gang \"gang\": rank 0 asked for a shared region of 128 bytes, but rank 3 for a shared region "
              "of 64 bytes");
    root.barrier();
  });
}

TEST(GangRanks, ChildrenWorkAfterTheParentIsShutDownAndReleased) {
  GangOptions options = test::thread_rank_options();
  std::vector<GangPtr> roots = Gang::create_threads(3, options);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      GangPtr root = std::move(roots[static_cast<size_t>(r)]);
      const GangPtr child = root->create_gang(Members{2, 1, 0});
      const std::shared_ptr<Buffer> memory = Buffer::allocate(child->allocator(), 256);
      root->shutdown(10'000);
      EXPECT_EQ(error_of([&] { root->barrier(); }).code(), Code::invalid_state);
      root.reset();
      EXPECT_EQ(child->agreement().all_sum(Channel::user, 1), 3);
      child->shutdown(10'000);
    });
  for (std::thread& t : threads) t.join();
}

// A call that no peer joins, then the release of the rank's last gang: nothing is kept by what is in flight.
TEST(GangRanks, ReleasingTheLastGangWithACallInFlightFreesTheRank) {
  for (const bool held : {false, true})
    for (const bool child : {false, true}) {
      std::vector<GangPtr> roots = Gang::create_threads(2, test::thread_rank_options());
      const std::weak_ptr<Rank> rank = roots[0]->owner();
      std::vector<float> x(600'000), y(1'200'000);  // more than is staged at once
      Collective c;
      c.op = CollectiveOp::all_gather;
      c.in = x.data();
      c.out = y.data();
      c.count = x.size();
      WorkPtr work = roots[0]->run(Channel::user, c);
      GangPtr other = child ? roots[0]->alone() : nullptr;
      if (!held) work.reset();
      roots[0].reset();
      EXPECT_EQ(rank.expired(), !child) << "another gang of the rank keeps it";
      if (child) {
        EXPECT_EQ(other->agreement().all_sum(Channel::user, 1), 1);
        other.reset();
      }
      EXPECT_TRUE(rank.expired());
      if (held) {
        EXPECT_EQ(error_of([&] { work->wait(Deadline::never()); }).code(), Code::invalid_state);
      }
      // The peer is told, not left waiting.
      EXPECT_EQ(error_of([&] { roots[1]->run_now(Channel::user, c); }).code(), Code::peer_lost);
    }
}

TEST(GangRanks, AReleasedGangWhoseCallsHaveEndedIsGoneAtOnce) {
  run_ranks(2, [](Gang& root) {
    const auto before = root.owner().use_count();
    for (int i = 0; i < 20; ++i) {
      const GangPtr child = root.duplicate();
      Collective c;
      const WorkPtr work = child->run(Channel::user, c);  // puts the gang on the rank's list
      work->wait_input(Deadline::never());
    }
    EXPECT_EQ(root.owner().use_count(), before);
    EXPECT_LE(root.owner()->works()->size(), 1u) << "the root itself";
  });
}

TEST(GangRanks, AnAbortReachesEveryRank) {
  run_ranks(3, [](Gang& root) {
    const GangPtr child = root.duplicate("child");
    if (root.rank() == 1) child->abort("rank 1 has enough");
    const Error error = error_of([&] {
      for (;;) child->barrier();
    });
    EXPECT_EQ(error.code(), Code::aborted);
    EXPECT_NE(error.message().find("rank 1 has enough"), std::string::npos) << error.message();
    EXPECT_EQ(child->error()->message(), error.message());
    root.barrier();
  });
}

TEST(GangRanks, SurvivorsShrinkABrokenGang) {
  run_ranks(4, [](Gang& root) {
    const GangPtr gang = root.duplicate("work");
    gang->abort("rank 2 leaves");
    if (root.rank() != 2) {
      const GangPtr rest = gang->shrink(Members{3, 0, 1});
      EXPECT_EQ(rest->members(), (Members{3, 0, 1}));
      EXPECT_EQ(rest->agreement().all_sum(Channel::user, root.rank()), 4);
    }
    root.barrier();
  });
}

TEST(GangRanks, ManyThreadsOfARankShareAGang) {
  run_ranks(2, [](Gang& root) {
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    // One channel per thread, so that the order of each channel is the same on both ranks.
    for (const Channel channel : {Channel::user, Channel::tp, Channel::cp})
      threads.emplace_back([&, channel] {
        for (int i = 0; i < 50; ++i) right += root.agreement().all_sum(channel, i) == 2.0 * i ? 1 : 0;
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(right, 150);
  });
}

// A call whose hook throws, or ends the thread, leaves nobody at work on the caller's memory.
struct Hooked {
  GangPtr gang;
  InterruptCheck hook;
  Error error{Code::ok, ""};
};

void* call_with_hook(void* argument) {
  Hooked& hooked = *static_cast<Hooked*>(argument);
  std::vector<float> x(100'000, 1);
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = c.out = x.data();
  c.count = x.size();
  set_interrupt(hooked.hook, nullptr, nullptr);
  hooked.error = error_of([&] { hooked.gang->run_now(Channel::user, c); });
  return argument;
}

std::atomic<bool> asleep{false};

int sleeps(void*) {
  asleep = true;
  for (;;) sleep(1);  // a point where the thread can be cancelled
}

TEST(GangRanks, AHookThatThrowsOrEndsItsThreadBreaksTheGangOnEveryRank) {
  const InterruptCheck hooks[] = {[](void*) -> int { throw std::runtime_error("from the hook"); },
                                  [](void*) -> int { throw 3; }, [](void*) -> int { pthread_exit(nullptr); },
                                  sleeps};
  for (const InterruptCheck hook : hooks) {
    GangOptions options;
    options.arena_bytes = uint64_t{1} << 30;
    options.timeout_ms = 60'000;
    options.threads = 1;
    const std::vector<GangPtr> gangs = Gang::create_threads(2, options);
    Hooked hooked{gangs[0], hook};
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, call_with_hook, &hooked), 0);
    if (hook == sleeps) {
      const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!asleep && std::chrono::steady_clock::now() < late) std::this_thread::yield();
      ASSERT_TRUE(asleep);
      pthread_cancel(thread);
    }
    void* answer = nullptr;
    pthread_join(thread, &answer);
    const bool threw = hook == hooks[0] || hook == hooks[1];
    EXPECT_EQ(answer, threw ? &hooked : hook == sleeps ? PTHREAD_CANCELED : nullptr);
    EXPECT_EQ(hooked.error.code(), threw ? Code::caller : Code::ok) << hooked.error.message();
    if (hook == hooks[0]) {
      EXPECT_EQ(hooked.error.message(), "the caller's interrupt hook threw: from the hook");
    }
    const Error other = error_of([&] { gangs[1]->barrier(Channel::user); });
    EXPECT_EQ(other.code(), Code::aborted) << other.message();
  }
}

TEST(GangRanks, AFailureInOneBodyEndsTheOthers) {
  const Error error = error_of([] {
    run_ranks(3, [](Gang& root) {
      if (root.rank() == 1) fail(Code::caller, "rank 1 gives up");
      for (;;) root.barrier();
    });
  });
  EXPECT_EQ(error.code(), Code::caller);
  EXPECT_EQ(error.message(), "rank 1 gives up");
}

}  // namespace
}  // namespace gangway
