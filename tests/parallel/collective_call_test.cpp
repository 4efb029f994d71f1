// The two parts of a collective call on 1 to 4 ranks: a refusal in the check leaves the gangs intact on all
// ranks, and a failure in the run breaks them for all ranks, unless a rank is alone.
#include "parallel/collective_call.h"
#include "gang/agreement.h"

#include <new>

#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

struct Numbers {
  int64_t a = 0;
  double b = 0;
};

void expect_whole(Gang& root) {
  EXPECT_FALSE(root.error());
  EXPECT_EQ(root.agreement().all_sum(Channel::control, 1), root.size());
}

TEST(CollectiveCall, CheckGivesEveryRanksValueInRankOrder) {
  for (const int size : {1, 2, 3, 4})
    run_ranks(size, [](Gang& root) {
      const std::shared_ptr<Gangs> gangs = mesh_of(root);
      const std::vector<Numbers> all = CollectiveCall(*gangs, "count").check([&] {
        return Numbers{root.rank() * 7, -0.5 * root.rank()};
      });
      ASSERT_EQ(all.size(), static_cast<size_t>(root.size()));
      for (int r = 0; r < root.size(); ++r) {
        EXPECT_EQ(all[static_cast<size_t>(r)].a, r * 7);
        EXPECT_EQ(all[static_cast<size_t>(r)].b, -0.5 * r);
      }
    });
}

TEST(CollectiveCall, TheLowestRefusalIsThrownOnAllRanksAndTheGangsWorkOn) {
  for (const int size : {1, 2, 4})
    run_ranks(size, [](Gang& root) {
      const std::shared_ptr<Gangs> gangs = mesh_of(root);
      const CollectiveCall call(*gangs, "clip");
      expect_refusal(Code::not_found,
                     [&] { call.check([&] { fail(Code::not_found, "rank ", root.rank(), " misses it"); }); },
                     {"rank 0 misses it"});
      expect_whole(root);
      // The call does not read the value of a rank that has none.
      if (root.size() > 1)
        expect_refusal(Code::not_supported, [&] {
          call.check([&]() -> Numbers {
            if (root.rank() == 1) fail(Code::not_supported, "not here");
            return {1, 2};
          });
        });
      expect_whole(root);
    });
}

TEST(CollectiveCall, ARefusalOfReadJoinsTheCheckPhaseOfThePeers) {
  run_ranks(3, [](Gang& root) {
    const std::shared_ptr<Gangs> gangs = mesh_of(root);
    bool ran = false;
    const Error error = expect_refusal(Code::invalid_argument, [&] {
      CollectiveCall(*gangs, "gather").read([&] {
        if (root.rank() == 2) fail(Code::invalid_argument, "a null pointer");
      });
      CollectiveCall(*gangs, "gather").check([&] { return Numbers{}; }, "a gather of w");
      ran = true;
    });
    EXPECT_NE(error.message().find("a null pointer"), std::string::npos) << error.message();
    EXPECT_FALSE(ran);
    expect_whole(root);
  });
}

TEST(CollectiveCall, UnlikeArgumentsAndUnlikeCallsAreAMismatchWithBothTexts) {
  run_ranks(2, [](Gang& root) {
    const std::shared_ptr<Gangs> gangs = mesh_of(root);
    const bool first = root.rank() == 0;
    std::string arguments;
    expect_refusal(
        Code::mismatch,
        [&] {
          CollectiveCall(*gangs, "clip").check([&] { arguments = first ? "norm 2" : "norm 3"; }, arguments);
        },
        {"norm 2", "norm 3"});
    expect_refusal(Code::mismatch, [&] { CollectiveCall(*gangs, first ? "clip" : "save").check([] {}); },
                   {"clip", "save"});
    expect_whole(root);
  });
}

TEST(CollectiveCall, AFailedRunBreaksEveryGangWithTheFailingRanksError) {
  for (const int size : {2, 4})
    run_ranks(size, [](Gang& root) {
      const std::shared_ptr<Gangs> gangs = mesh_of(root);
      const Code code = root.rank() == 1 ? Code::out_of_memory : Code::aborted;
      const Error error = expect_refusal(code, [&] {
        CollectiveCall(*gangs, "gather").run([&] {
          if (root.rank() == 1) throw std::bad_alloc();
          gangs->fsdp_gang()->barrier();
        });
      });
      EXPECT_NE(error.message().find("gather: rank 1"), std::string::npos) << error.message();
      EXPECT_TRUE(gangs->fsdp_gang()->error());
      // The next call reports the same error without waiting.
      expect_refusal(code, [&] { CollectiveCall(*gangs, "save").check([] {}); },
                     {"gather: rank 1: no memory"});
    });
}

TEST(CollectiveCall, ARankThatIsAloneWorksOnAfterAFailedRun) {
  run_ranks(1, [](Gang& root) {
    const std::shared_ptr<Gangs> gangs = mesh_of(root);
    const CollectiveCall call(*gangs, "gather");
    EXPECT_THROW(call.run([] { throw std::bad_alloc(); }), std::bad_alloc);
    expect_whole(root);
    EXPECT_EQ(call.run([] { return 3; }), 3);
  });
}

}  // namespace
}  // namespace gangway::test
