// Movements over partitions: explicit values, and the adjoint test <F x, y> = <x, F* y>, summed over all
// ranks, with random f64 data. The expected values are sums and slices that every rank can compute by itself.
#include "parallel/movement/movement_testing.h"

namespace gangway::test {
namespace {

double inner(Gang& gang, const Tensor& a, const Tensor& b) {
  const Vector x = get(a), y = get(b);
  EXPECT_EQ(x.size(), y.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return gang.agreement().all_sum(Channel::user, sum);
}

// Runs the adjoint test and returns the output of forward.
Tensor expect_adjoint(ModuleRig& rig, Module& module, const Tensor& x, const std::string& what) {
  rig.frame.reset();
  const Tensor fx = module.forward_one(rig.ctx, x, &rig.frame);
  const Tensor y = filled(rig.gang, fx.shape(), 7);
  const Tensor back = module.backward_one(rig.ctx, y, rig.frame);
  EXPECT_EQ(back.shape(), x.shape()) << what;
  const double left = inner(rig.gang, fx, y), right = inner(rig.gang, x, back);
  EXPECT_NEAR(left, right, 1e-12 * (1 + std::abs(left))) << what;
  return fx;
}

const List kGrids[] = {{2, 3}, {4}, {6}, {2, 2, 3}};
int workers(const List& grid) {
  int n = 1;
  for (const int d : grid) n *= d;
  return n;
}

// The piece of `global` that a worker holds when every dim is balanced over the grid.
Box piece_of(const Partition& grid, const Shape& global, const List& index) {
  Box box = whole_box(global);
  for (int d = 0; d < global.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    const std::vector<int64_t> bounds = balanced_bounds(global[d], grid.shape()[i]);
    box.first[i] = bounds[static_cast<size_t>(index[i])];
    box.shape[d] = bounds[static_cast<size_t>(index[i]) + 1] - box.first[i];
  }
  return box;
}
Tensor cut(ModuleRig& rig, const Shape& global, const Vector& values, const Box& box) {
  const Tensor part = slice(make(rig.gang.device(), DType::f64, global, values), box);
  const Tensor own = Tensor::allocate(rig.gang.device().allocator(), DType::f64, part.shape());
  if (own.count() != 0) rig.ops->cast(part, own, rig.ctx.stream);
  return own;
}
Shape global_of(const List& grid, int64_t rows) {
  Shape shape(std::vector<int64_t>(grid.size(), rows));
  shape[shape.rank() - 1] += 1;
  return shape;
}

// An even and an odd number of rows, fewer rows than workers, and no rows.
constexpr int64_t kRows[] = {6, 7, 2, 0};

TEST(Movement, AllGatherJoinsThePiecesOfOneDimAndIsAdjointToReduceScatter) {
  for (const List& shape : kGrids)
    run_ranks(workers(shape), [&](Gang& gang) {
      ModuleRig rig(gang);
      const Partition grid = world(gang).cartesian(shape);
      for (int axis = 0; axis < grid.dims(); ++axis) {
        const ModulePtr module = movement(Movement::all_gather, grid, along({axis}));
        for (const int64_t rows : kRows) {
          const Shape global = global_of(shape, rows);
          const Vector values = random_vector(static_cast<size_t>(global.count()), 3);
          const Box own = piece_of(grid, global, grid.index());
          Box joined = own;
          joined.first[static_cast<size_t>(axis)] = 0;
          joined.shape[axis] = global[axis];
          const Tensor y = expect_adjoint(rig, *module, cut(rig, global, values, own), global.text());
          EXPECT_EQ(get(y), get(cut(rig, global, values, joined))) << global.text() << " along " << axis;
        }
      }
    });
}

TEST(Movement, ReduceScatterSumsAndKeepsTheBalancedPiece) {
  for (const List& shape : kGrids)
    run_ranks(workers(shape), [&](Gang& gang) {
      ModuleRig rig(gang);
      const Partition grid = world(gang).cartesian(shape);
      for (int axis = 0; axis < grid.dims(); ++axis) {
        const ModulePtr module = movement(Movement::reduce_scatter, grid, along({axis}));
        const int W = shape[static_cast<size_t>(axis)];
        for (const int64_t rows : kRows) {
          const Shape local = global_of(shape, rows);
          expect_adjoint(rig, *module, filled(gang, local, 3), local.text());
          // Every rank has the same values, so the sum is W times this rank's rows.
          Vector values = random_vector(static_cast<size_t>(local.count()), 5);
          const Tensor y =
              module->forward_one(rig.ctx, make(gang.device(), DType::f64, local, values), nullptr);
          Box own = whole_box(local);
          const std::vector<int64_t> bounds = balanced_bounds(local[axis], W);
          const auto at = static_cast<size_t>(grid.index()[static_cast<size_t>(axis)]);
          own.first[static_cast<size_t>(axis)] = bounds[at];
          own.shape[axis] = bounds[at + 1] - bounds[at];
          for (double& v : values) v *= W;
          EXPECT_LE(normwise(get(y), get(cut(rig, local, values, own))), 1e-15)
              << local.text() << " " << axis;
        }
      }
    });
}

TEST(Movement, AllSumReduceIsItsOwnAdjointAlongAnyDims) {
  for (const List& shape : kGrids)
    run_ranks(workers(shape), [&](Gang& gang) {
      ModuleRig rig(gang);
      const Partition grid = world(gang).cartesian(shape);
      for (const bool keep : {false, true}) {
        MovementOptions options;
        (keep ? options.axes_keep : options.axes) = List{0};
        const ModulePtr module = movement(Movement::all_sum_reduce, grid, options);
        expect_adjoint(rig, *module, filled(gang, {3, 5}, 1), "all_sum_reduce");
        const Tensor ones = make(gang.device(), DType::f64, {1}, {1});
        const int summed = keep ? grid.size() / shape[0] : shape[0];
        EXPECT_EQ(get(module->forward_one(rig.ctx, ones, nullptr)), (Vector{static_cast<double>(summed)}));
      }
    });
}

TEST(Movement, OverNoDimsEachWorkerGetsACopyOfItsOwnTensor) {
  run_ranks(6, [](Gang& gang) {
    ModuleRig rig(gang);
    const Partition grid = world(gang).inclusive(List{0, 1, 2, 3}).cartesian(List{2, 2});
    for (const Movement kind : {Movement::all_gather, Movement::reduce_scatter, Movement::all_sum_reduce})
      for (const bool keep : {false, true}) {
        MovementOptions options;
        (keep ? options.axes_keep : options.axes) = keep ? List{0, 1} : List{};
        const ModulePtr module = movement(kind, grid, options);
        // Workers may have different shapes, also of other dims than the partition has.
        for (const Shape& shape : {Shape{gang.rank() + 1, 3}, Shape{5}, Shape{2, 0, 3}}) {
          const Tensor x = grid.active() ? filled(gang, shape, 1) : nothing(gang);
          const Tensor y = expect_adjoint(rig, *module, x, name(kind));
          EXPECT_EQ(y.shape(), grid.active() ? shape : Shape{0});
          EXPECT_EQ(get(y), get(x)) << name(kind);
          EXPECT_TRUE(x.count() == 0 || y.raw() != x.raw());
        }
      }
  });
}

// The source and the target partition overlap, one contains the other, or they have no worker in common.
struct Pair {
  List source_ranks, source, target_ranks, target;
};
const Pair kSpread[] = {
    {{0}, {1}, {0, 1, 2, 3, 4, 5}, {2, 3}},
    {{5}, {1}, {0, 1, 2}, {3}},
    {{0, 1}, {2, 1}, {0, 1, 2, 3, 4, 5}, {2, 3}},
    {{1, 2}, {2, 1}, {2, 3, 4, 0}, {2, 2}},
    {{3, 4, 5}, {1, 3}, {0, 1, 2, 3, 4, 5}, {2, 3}},
    {{4, 0}, {2}, {0, 4, 2, 1}, {2, 2}},
    {{2, 1, 0}, {3}, {2, 1, 0}, {3}},
};

TEST(Movement, BroadcastAndSumReduceAreAdjointToEachOther) {
  run_ranks(6, [](Gang& gang) {
    ModuleRig rig(gang);
    for (const Pair& pair : kSpread) {
      const Partition few = world(gang).inclusive(pair.source_ranks).cartesian(pair.source);
      const Partition many = world(gang).inclusive(pair.target_ranks).cartesian(pair.target);
      const ModulePtr spread = between(Movement::broadcast, few, many);
      const ModulePtr sum = between(Movement::sum_reduce, many, few);
      for (const Shape& shape : {Shape{3, 5}, Shape{4}, Shape{2, 0}}) {
        const Tensor x = few.active() ? filled(gang, shape, 1) : nothing(gang);
        const Tensor out = expect_adjoint(rig, *spread, x, few.text() + " to " + many.text());
        EXPECT_EQ(out.shape(), many.active() ? shape : Shape{0});
        const Tensor y = many.active() ? filled(gang, shape, 2) : nothing(gang);
        const Tensor total = expect_adjoint(rig, *sum, y, many.text() + " to " + few.text());
        EXPECT_EQ(total.shape(), few.active() ? shape : Shape{0});
      }
    }
  });
}

// Tells who gets what: each target the number of its source, each source the sum of the numbers of its
// targets.
TEST(Movement, BroadcastFollowsTheRuleOfAligningDims) {
  run_ranks(6, [](Gang& gang) {
    ModuleRig rig(gang);
    const double r = gang.rank();
    const auto number = [&](bool active) {
      return active ? make(gang.device(), DType::f64, {1}, {r}) : nothing(gang);
    };
    const Partition grid = world(gang).cartesian(List{2, 3});
    const Partition row = world(gang).inclusive(List{3, 4, 5});
    const Partition column = world(gang).inclusive(List{0, 5}).cartesian(List{2, 1});
    const auto spread = [&](const Partition& few, MovementOptions options = {}) {
      return get(between(Movement::broadcast, few, grid, options)
                     ->forward_one(rig.ctx, number(few.active()), nullptr));
    };
    const auto sum = [&](const Partition& few, MovementOptions options = {}) {
      return get(
          between(Movement::sum_reduce, grid, few, options)->forward_one(rig.ctx, number(true), nullptr));
    };
    EXPECT_EQ(spread(row), (Vector{3.0 + gang.rank() % 3}));
    EXPECT_EQ(spread(column), (Vector{gang.rank() < 3 ? 0.0 : 5.0}));
    EXPECT_EQ(sum(row), (row.active() ? Vector{2 * r - 3} : Vector{}));
    EXPECT_EQ(sum(column), (gang.rank() == 0 ? Vector{3} : gang.rank() == 5 ? Vector{12} : Vector{}));
    // Transposed, [1, 2] is [2, 1].
    MovementOptions source, target;
    source.transpose_source = target.transpose_target = true;
    const Partition flat = world(gang).inclusive(List{0, 5}).cartesian(List{1, 2});
    EXPECT_EQ(spread(flat, source), (Vector{gang.rank() < 3 ? 0.0 : 5.0}));
    EXPECT_EQ(sum(flat, target), (gang.rank() == 0 ? Vector{3} : gang.rank() == 5 ? Vector{12} : Vector{}));
  });
}

const Pair kCuts[] = {
    {{0, 1, 2, 3, 4, 5}, {2, 3}, {0, 1, 2, 3, 4, 5}, {3, 2}},
    {{0, 1, 2, 3}, {4, 1}, {5, 4, 3}, {1, 3}},
    {{2}, {1, 1}, {0, 1, 2, 3, 4, 5}, {6, 1}},
    {{0, 1}, {1, 2}, {2, 3, 4, 5}, {2, 2}},
    {{5, 4, 3, 2, 1, 0}, {6, 1}, {0}, {1, 1}},
    {{0, 1}, {2, 1}, {0, 1}, {2, 1}},
};

TEST(Movement, RepartitionCutsAnotherWayAndBack) {
  run_ranks(6, [](Gang& gang) {
    ModuleRig rig(gang);
    for (const Pair& pair : kCuts) {
      const Partition from = world(gang).inclusive(pair.source_ranks).cartesian(pair.source);
      const Partition to = world(gang).inclusive(pair.target_ranks).cartesian(pair.target);
      const ModulePtr module = between(Movement::repartition, from, to);
      for (const Shape& global : {Shape{6, 7}, Shape{5, 4}, Shape{1, 3}, Shape{0, 2}}) {
        const Vector values = random_vector(static_cast<size_t>(global.count()), 9);
        const Tensor x =
            from.active() ? cut(rig, global, values, piece_of(from, global, from.index())) : nothing(gang);
        const Tensor y = expect_adjoint(rig, *module, x, from.text() + " to " + to.text());
        EXPECT_EQ(get(y),
                  to.active() ? get(cut(rig, global, values, piece_of(to, global, to.index()))) : Vector{});
      }
    }
  });
}

TEST(Movement, InactiveWorkersPassAndGetTensorsOfNoElements) {
  run_ranks(3, [](Gang& gang) {
    ModuleRig rig(gang);
    const Partition two = world(gang).inclusive(List{2, 0});
    const ModulePtr gather = movement(Movement::all_gather, two, along({0}));
    const double r = gang.rank();
    const Tensor x = two.active() ? make(gang.device(), DType::f64, {1}, {r}) : nothing(gang);
    EXPECT_EQ(get(expect_adjoint(rig, *gather, x, "two of three")), (two.active() ? Vector{2, 0} : Vector{}));
    const Tensor some = filled(gang, {2, 3}, 1);
    expect_refusal(Code::invalid_argument,
                   [&] { gather->forward_one(rig.ctx, two.active() ? x : some, nullptr); },
                   {"all_gather: rank 1 is no worker of the partition", "not f64 [2, 3]"});
    const Tensor batch = Tensor::allocate(gang.device().allocator(), DType::f64, Shape{4, 0});
    const Tensor y = gather->forward_one(rig.ctx, two.active() ? x : batch, nullptr);
    EXPECT_EQ(y.shape(), (two.active() ? Shape{2} : Shape{4, 0}));
    MovementOptions options;
    options.preserve_batch = true;
    const ModulePtr sum = between(Movement::sum_reduce, world(gang), world(gang).inclusive(List{1}), options);
    const Tensor total = sum->forward_one(rig.ctx, filled(gang, {4, 2}, 1), nullptr);
    EXPECT_EQ(total.shape(), (gang.rank() == 1 ? Shape{4, 2} : Shape{4, 0}));
  });
}

TEST(Movement, OneWorkerAloneGetsACopy) {
  run_ranks(1, [](Gang& gang) {
    ModuleRig rig(gang);
    const Tensor x = filled(gang, {3, 2}, 1);
    const Partition grid = world(gang).cartesian(List{1, 1});
    for (const ModulePtr& module :
         {movement(Movement::all_gather, grid, along({1})),
          movement(Movement::reduce_scatter, grid, along({0})),
          movement(Movement::all_sum_reduce, grid, along({})), between(Movement::broadcast, grid, grid),
          between(Movement::sum_reduce, grid, grid), between(Movement::repartition, grid, grid)}) {
      const Tensor y = expect_adjoint(rig, *module, x, module->kind());
      EXPECT_EQ(get(y), get(x));
      EXPECT_NE(y.raw(), x.raw());
    }
  });
}

TEST(Movement, ASubtopologyIsAPartitionOfItsGroup) {
  run_ranks(6, [](Gang& gang) {
    ModuleRig rig(gang);
    const Partition column = world(gang).cartesian(List{2, 3}).subtopology(List{0});
    const double r = gang.rank();
    const ModulePtr gather = movement(Movement::all_gather, column, along({0}));
    const Tensor x = make(gang.device(), DType::f64, {1}, {r});
    EXPECT_EQ(get(gather->forward_one(rig.ctx, x, nullptr)),
              (Vector{static_cast<double>(gang.rank() % 3), gang.rank() % 3 + 3.0}));
  });
}

TEST(Movement, BackwardMultipliesByItsScale) {
  run_ranks(2, [](Gang& gang) {
    ModuleRig rig(gang);
    MovementOptions options = along({0});
    options.backward_scale = 0.5;
    const ModulePtr gather = movement(Movement::all_gather, world(gang), options);
    const Tensor x = make(gang.device(), DType::f64, {1}, {1});
    gather->forward_one(rig.ctx, x, &rig.frame);
    const Tensor dy = make(gang.device(), DType::f64, {2}, {3, 5});
    EXPECT_EQ(get(gather->backward_one(rig.ctx, dy, rig.frame)), (Vector{gang.rank() == 0 ? 3.0 : 5.0}));
  });
}

}  // namespace
}  // namespace gangway::test
