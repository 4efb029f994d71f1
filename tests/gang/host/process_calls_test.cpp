// What ranks as threads are tested for in many ways, once more where they are processes: calls that differ, and two
// gangs whose calls cross.
#include "gang/agreement.h"
#include "gang/gang.h"
#include "gang/host/input.h"
#include "gang/host/joined.h"
#include "gang/host/reference.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

struct Difference {
  const char* what;
  Collective others, of_rank_1;
};

std::vector<Difference> differences() {
  Collective sum, root;
  sum.op = CollectiveOp::all_reduce;
  sum.count = 8;
  sum.reduce = Reduce::sum;
  root.op = CollectiveOp::broadcast;
  root.count = 8;
  root.peer = 0;
  std::vector<Difference> all{{"op", sum, sum},
                              {"count", sum, sum},
                              {"dtype", sum, sum},
                              {"reduction", sum, sum},
                              {"root", root, root}};
  all[0].of_rank_1.op = CollectiveOp::all_gather;
  all[0].of_rank_1.reduce = Reduce::none;
  all[1].of_rank_1.count = 9;
  all[2].of_rank_1.dtype = DType::i32;
  all[3].of_rank_1.reduce = Reduce::max;
  all[4].of_rank_1.peer = 1;
  return all;
}

TEST(HostProcesses, DifferentCallsAreAMismatchOnEveryRankWithOneText) {
  for (const Difference& difference : differences()) {
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      Joined joined(r, 3, store);
      std::vector<float> in(64), out(64);
      Collective c = r == 1 ? difference.of_rank_1 : difference.others, barrier;
      c.in = in.data();
      c.out = out.data();
      now(*joined.engine, barrier, joined.stream());  // the gang is made on all
      // A rank that needed nobody may be through with its call; it hears of the difference in the next one.
      until_failure(report, [&] { now(*joined.engine, std::exchange(c, barrier), joined.stream()); });
      stay_until_released(report);
    });
    release_after_failures(ranks, {0, 1, 2});
    ranks.expect_all_well();
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::mismatch)) << difference.what;
      EXPECT_STREQ(ranks.report(r).text, ranks.report(0).text) << difference.what;
      EXPECT_NE(std::string(ranks.report(r).text).find("different collectives"), std::string::npos)
          << difference.what << ": " << ranks.report(r).text;
    }
  }
}

TEST(HostProcesses, ARanksRefusalReachesAllWhicheverEndsFirst) {
  for (int round = 0; round < 20; ++round) {
    Processes ranks(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      GangOptions options;
      options.engine = "host";
      options.rank = r;
      options.size = 3;
      options.store = store;
      const auto gang = Gang::create(options);
      std::optional<Error> refusal;
      if (r == round % 3) refusal = Error(Code::not_supported, "the moon is not supported");
      try {
        gang->agreement().agree(refusal);
      } catch (const Error& error) {
        report.say(error.message());
      }
      _exit(0);  // without a word to the others
    });
    ranks.expect_all_well();
    for (int r = 0; r < 3; ++r)
      EXPECT_STREQ(ranks.report(r).text, "the moon is not supported") << "rank " << r;
  }
}

TEST(HostProcesses, TwoGangsInCrossedOrderWorkInBothWaitOrders) {
  Processes ranks(3, [](int r, const std::shared_ptr<Store>& store, Report&) {
    Joined joined(r, 3, store);
    const auto a = joined.engine->create(std::vector<int>{0, 1, 2}, "a");
    const auto b = joined.engine->create(std::vector<int>{2, 1, 0}, "b");
    for (const size_t count : {size_t{1}, size_t{2000}, size_t{200'000}})
      for (const bool swap : {false, true}) {
        std::vector<float> x(count, 1), y(count, 10);
        Collective cx, cy;
        cx.op = cy.op = CollectiveOp::all_reduce;
        cx.reduce = cy.reduce = Reduce::sum;
        cx.count = cy.count = count;
        cx.in = cx.out = x.data();
        cy.in = cy.out = y.data();
        const bool first_a = r % 2 == 0;  // the odd rank starts and waits in the other order
        Engine& one = first_a ? *a : *b;
        Engine& two = first_a ? *b : *a;
        const WorkPtr w1 = one.run(Channel::user, {first_a ? &cx : &cy, 1}, joined.stream());
        const WorkPtr w2 = two.run(Channel::user, {first_a ? &cy : &cx, 1}, joined.stream());
        (swap ? w2 : w1)->wait_input(Deadline::never());
        (swap ? w1 : w2)->wait_input(Deadline::never());
        EXPECT_EQ(x, std::vector<float>(count, 3));
        EXPECT_EQ(y, std::vector<float>(count, 30));
      }
    joined.engine->shutdown(Deadline::after_ms(10'000));
  });
  ranks.expect_all_well();
}

}  // namespace
}  // namespace gangway::test
