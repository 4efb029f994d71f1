// Refusals of movements: they are those of all ranks, and the gang works on.
#include "parallel/movement/movement_testing.h"

namespace gangway::test {
namespace {

// Ranks 0 and 2 sum, and ranks 1 and 3 sum. Shapes that differ within one of these groups are refused in
// both.
TEST(Movement, ARefusalOfOneGroupIsReportedToAllRanks) {
  run_ranks(4, [](Gang& gang) {
    ModuleRig rig(gang);
    const Partition grid = world(gang).cartesian(List{2, 2});
    const Partition row = world(gang).inclusive(List{0, 1}).cartesian(List{1, 2});
    const ModulePtr sum = between(Movement::sum_reduce, grid, row);
    const Tensor odd = filled(gang, {gang.rank() == 3 ? 5 : 4}, 1);
    expect_refusal(Code::invalid_argument, [&] { sum->forward_one(rig.ctx, odd, &rig.frame); },
                   {"sum_reduce", "[5]", "[4]"});
    EXPECT_EQ(sum->forward_one(rig.ctx, filled(gang, {4}, 1), &rig.frame).shape(),
              (gang.rank() < 2 ? Shape{4} : Shape{0}));
    const Tensor dy = gang.rank() == 1   ? filled(gang, {3}, 1)
                      : gang.rank() == 0 ? filled(gang, {4}, 1)
                                         : nothing(gang);
    expect_refusal(Code::invalid_argument, [&] { sum->backward_one(rig.ctx, dy, rig.frame); },
                   {"the gradient is f64 [3]", "f64 [4]"});
    EXPECT_FALSE(gang.error().has_value());
  });
}

TEST(Movement, RefusalsAtCreationAreThoseOfAllRanks) {
  run_ranks(4, [](Gang& gang) {
    const Partition all = world(gang), grid = all.cartesian(List{2, 2});
    const auto refuse = [](std::initializer_list<const char*> parts, const auto& f) {
      expect_refusal(Code::invalid_argument, f, parts);
    };
    MovementOptions both = along({0});
    both.axes_keep = List{1};
    for (const Movement kind : {Movement::all_gather, Movement::reduce_scatter, Movement::all_sum_reduce}) {
      refuse({name(kind), "axes and axes_keep are both given"}, [&] { movement(kind, grid, both); });
      refuse({name(kind), "neither axes nor axes_keep is given"}, [&] { movement(kind, grid, {}); });
      refuse({name(kind), "dim 2 is outside [0, 2)"}, [&] { movement(kind, grid, along({2})); });
      refuse({name(kind), "takes one partition"}, [&] { between(kind, grid, grid, along({0})); });
    }
    for (const Movement kind : {Movement::all_gather, Movement::reduce_scatter})
      refuse({"along one dim of the partition, but the axes name 2 of its 2"}, [&] {
        movement(kind, grid, along({0, 1}));
      });
    for (const Movement kind : {Movement::broadcast, Movement::sum_reduce, Movement::repartition}) {
      refuse({name(kind), "needs a target partition"}, [&] { movement(kind, grid, {}); });
      refuse({name(kind), "takes no axes"}, [&] { between(kind, grid, grid, along({0})); });
    }
    refuse({"dim -1 is 4 on the side that holds one tensor and 2 on the other"},
           [&] { between(Movement::broadcast, all, grid); });
    refuse({"the source has 2 dims, more than the 1 of the other side"},
           [&] { between(Movement::broadcast, grid, all); });
    refuse({"the target has 2 dims, more than the 1 of the other side"},
           [&] { between(Movement::sum_reduce, all, grid); });
    refuse({"the source has 1 dims and the target 2"}, [&] { between(Movement::repartition, all, grid); });
    // All ranks get the refusal of the first rank that refuses, and the gang goes on working.
    const MovementOptions odd = gang.rank() == 2 ? along({0, 1}) : along({0});
    refuse({"but the axes name 2"}, [&] { movement(Movement::all_gather, grid, odd); });
    const MovementOptions other = along({gang.rank() == 3 ? 1 : 0});
    expect_refusal(Code::mismatch, [&] { movement(Movement::all_gather, grid, other); },
                   {"all_gather axes [ 0 ]", "all_gather axes [ 1 ]"});
    gang.barrier();
  });
}

TEST(Movement, TensorsThatDoNotMeetAreRefusedOnAllTheirRanksAndTheGangWorksOn) {
  run_ranks(2, [](Gang& gang) {
    ModuleRig rig(gang);
    const int r = gang.rank();
    const Partition grid = world(gang).cartesian(List{2, 1});
    const ModulePtr gather = movement(Movement::all_gather, grid, along({0}));
    const auto refuse = [&](Module& module, const Tensor& x, std::initializer_list<const char*> parts) {
      expect_refusal(
          Code::invalid_argument, [&] { module.forward_one(rig.ctx, x, nullptr); }, parts);
    };
    refuse(*gather, filled(gang, {2, 3 + r}, 1),
           {"all_gather: member 1 of the group has f64 [2, 4], member 0 f64 [2, 3]; they must be equal but "
            "for dim 0"});
    refuse(*gather, filled(gang, {2}, 1), {"member 0 of the group has [2], but the partition has 2 dims"});
    const ModulePtr sum = movement(Movement::all_sum_reduce, grid, along({0}));
    refuse(*sum, filled(gang, {2 + r}, 1), {"they must be equal"});
    const ModulePtr cuts = between(Movement::repartition, grid, world(gang).cartesian(List{1, 2}));
    refuse(*cuts, filled(gang, {2, 3 + r}, 1), {"worker 1 has 4 rows of dim 1", "along it 3"});
    refuse(*cuts, filled(gang, {2}, 1), {"worker 0 has f64 [2], but the partition has 2 dims"});
    EXPECT_EQ(get(gather->forward_one(rig.ctx, make(gang.device(), DType::f64, {1, 1}, {1.0 * r}), nullptr)),
              (Vector{0, 1}));
    const Tensor x = filled(gang, {1, 1}, 1);
    rig.frame.reset();
    expect_refusal(Code::invalid_state, [&] { gather->backward_one(rig.ctx, x, rig.frame); },
                   {"no forward has run"});
    gather->forward_one(rig.ctx, x, &rig.frame);
    expect_refusal(Code::invalid_argument, [&] { gather->backward_one(rig.ctx, x, rig.frame); },
                   {"the gradient is f64 [1, 1], the output was f64 [2, 1]"});
  });
}

}  // namespace
}  // namespace gangway::test
