// Gangs of every mesh over real ranks (threads), against the rank formula written out here.
#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "gang/agreement.h"
#include "gang/thread_ranks.h"
#include "mesh/current.h"
#include "mesh/gangs.h"

namespace gangway {
namespace {

using test::error_of;
using test::run_ranks;
using Members = std::vector<int>;

struct Degrees {
  int pp, rep, shard, cp, tp;
};

std::vector<Degrees> all_meshes(int size) {
  std::vector<Degrees> all;
  for (int pp = 1; pp <= size; ++pp)
    for (int rep = 1; rep <= size; ++rep)
      for (int shard = 1; shard <= size; ++shard)
        for (int cp = 1; cp <= size; ++cp)
          for (int tp = 1; tp <= size; ++tp)
            if (pp * rep * shard * cp * tp == size) all.push_back({pp, rep, shard, cp, tp});
  return all;
}

// Ranks that agree with `rank` on every axis that is not varied (flags in the order pp rep shard cp tp).
Members expected(const Degrees& d, int rank, std::array<bool, 5> varied) {
  struct Place {
    int at[5];
  };
  const auto place = [&](int r) {
    return Place{{r / (d.rep * d.shard * d.cp * d.tp), r / (d.shard * d.cp * d.tp) % d.rep,
                  r / (d.cp * d.tp) % d.shard, r / d.tp % d.cp, r % d.tp}};
  };
  const Place own = place(rank);
  Members members;
  for (int r = 0; r < d.pp * d.rep * d.shard * d.cp * d.tp; ++r) {
    bool in = true;
    for (size_t i = 0; i < 5; ++i) in = in && (varied[i] || place(r).at[i] == own.at[i]);
    if (in) members.push_back(r);
  }
  return members;
}

void check_gang(const GangPtr& gang, const Members& members, const Gang& root, const char* what) {
  if (gang->members() != members) fail(Code::internal, what, " has other members on rank ", root.rank());
  if (root.rank() == 0 && gang->rank() != 0) fail(Code::internal, what, " does not have rank 0 first");
  if (gang->members()[static_cast<size_t>(gang->rank())] != root.rank())
    fail(Code::internal, what, " does not place rank ", root.rank());
  double sum = 0;
  for (const int m : members) sum += m + 1;
  if (gang->agreement().all_sum(Channel::user, root.rank() + 1) != sum)
    fail(Code::internal, what, " sums over other ranks");
}

class EveryMesh : public testing::TestWithParam<int> {};

TEST_P(EveryMesh, HasTheGangsOfTheFormula) {
  run_ranks(GetParam(), [](Gang& root) {
    for (const Degrees& d : all_meshes(root.size())) {
      const int r = root.rank();
      const GangsPtr gangs = create_gangs(root.shared_from_this(), {d.pp, d.rep, d.shard, d.cp, d.tp});
      check_gang(gangs->pp(), expected(d, r, {true, false, false, false, false}), root, "pp");
      check_gang(gangs->rdp(), expected(d, r, {false, true, false, false, false}), root, "rdp");
      check_gang(gangs->sdp(), expected(d, r, {false, false, true, false, false}), root, "sdp");
      check_gang(gangs->cp(), expected(d, r, {false, false, false, true, false}), root, "cp");
      check_gang(gangs->tp(), expected(d, r, {false, false, false, false, true}), root, "tp");
      check_gang(gangs->dp(), expected(d, r, {false, true, true, false, false}), root, "dp");
      check_gang(gangs->fsdp_gang(), expected(d, r, {false, false, true, true, false}), root, "dp_shard+cp");
      check_gang(gangs->loss_gang(), expected(d, r, {false, true, true, true, false}), root, "losses");
      check_gang(gangs->by_axes("tp+pp"), expected(d, r, {true, false, false, false, true}), root, "pp+tp");
      int index = -1, count = -1;
      gangs->data_shard(&index, &count);
      EXPECT_EQ(count, d.rep * d.shard);
      EXPECT_EQ(index, gangs->dp()->rank());
      gangs->close(30'000);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryMesh, testing::Range(1, 9));

TEST(GangsRanks, EightRanksInTwoNodesOfFour) {
  run_ranks(8, [](Gang& root) {
    const GangsPtr flat = create_gangs(root.shared_from_this(), MeshOptions{});
    const GangsPtr gangs = create_fsdp_gangs(*flat, 4);
    const int r = root.rank();
    check_gang(gangs->sdp(), r < 4 ? Members{0, 1, 2, 3} : Members{4, 5, 6, 7}, root, "sdp");
    check_gang(gangs->rdp(), Members{r % 4, r % 4 + 4}, root, "rdp");
    gangs->close(30'000);
    flat->close(30'000);
  });
}

TEST(GangsRanks, OneRanksBadMeshIsRefusedOnAllRanks) {
  run_ranks(4, [](Gang& root) {
    MeshOptions options;
    options.tp = root.rank() == 2 ? 3 : 2;
    const Error refused = error_of([&] { create_gangs(root.shared_from_this(), options); });
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_EQ(
        refused.message(),
        "pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 3 = 3 x auto, but the root gang has 4 ranks");
    EXPECT_EQ(refused.rank, 2);
    options.tp = root.rank() == 3 ? 4 : 2;
    const Error different = error_of([&] { create_gangs(root.shared_from_this(), options); });
    EXPECT_EQ(different.code(), Code::mismatch);
    EXPECT_EQ(different.message(),
              "gang \"gang\": rank 0 asked for the mesh pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 2, "
              "but rank 3 "
              "for the mesh pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 4");
    EXPECT_EQ(root.agreement().all_sum(Channel::user, 1), 4);
  });
}

// Its peers have theirs, and the root's next collective is everybody's.
TEST(GangsRanks, ARefusedProductOfAxesOnOneRankLeavesNoPeerWaiting) {
  run_ranks(4, [](Gang& root) {
    const GangsPtr gangs = create_gangs(root.shared_from_this(), {.pp = 2, .dp_shard = 1, .tp = 2});
    for (const char* axes : {"tp+pp", "dp+tp", "cp+pp+tp"}) {
      if (root.rank() == 1) {
        EXPECT_EQ(error_of([&] { gangs->by_axes(text(axes, "+row")); }).code(), Code::invalid_argument);
      } else {
        EXPECT_EQ(gangs->by_axes(axes)->rank(), root.rank() % gangs->by_axes(axes)->size());
      }
    }
    EXPECT_EQ(root.agreement().all_sum(Channel::user, 1), 4);
    EXPECT_EQ(gangs->by_axes("pp+tp")->agreement().all_sum(Channel::user, 1), 4);
    gangs->close(30'000);
  });
}

TEST(GangsRanks, CallsOnDifferentGangsOfAMeshDoNotMeet) {
  run_ranks(4, [](Gang& root) {
    const GangsPtr gangs = create_parallel_gangs(root.shared_from_this(), 2);
    double a = 1, b = 1, c = 1;
    Collective sum;
    sum.op = CollectiveOp::all_reduce;
    sum.count = 1;
    sum.dtype = DType::f64;
    sum.reduce = Reduce::sum;
    const auto start = [&](const GangPtr& gang, double* x) {
      sum.in = sum.out = x;
      return gang->run(Channel::user, sum);
    };
    const WorkPtr on_tp = start(gangs->tp(), &a), on_dp = start(gangs->dp(), &b),
                  on_root = start(gangs->root(), &c);
    on_root->wait(Deadline::never());
    on_dp->wait(Deadline::never());
    on_tp->wait(Deadline::never());
    EXPECT_EQ(a, 2);
    EXPECT_EQ(b, 2);
    EXPECT_EQ(c, 4);
    gangs->close(30'000);
  });
}

TEST(GangsRanks, CurrentGangsBelongToTheirThread) {
  run_ranks(3, [](Gang& root) {
    const GangsPtr gangs = create_gangs(root.shared_from_this(), MeshOptions{});
    EXPECT_EQ(maybe_current_gangs(), nullptr);
    push_current_gangs(gangs);
    root.barrier();
    EXPECT_EQ(maybe_current_gangs()->root()->rank(), root.rank());
    pop_current_gangs(gangs.get());
    root.barrier();
  });
}

}  // namespace
}  // namespace gangway
