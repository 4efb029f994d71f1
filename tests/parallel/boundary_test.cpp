// Each pair of collectives in its own inner products: <F x, y> = <x, F* y> with random f64 data, and a value
// of its own.
#include "parallel/boundary.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "base/interrupt.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

// How a value is spread: each rank's own, or equal on all and counted once.
enum class Spread { varying, replicated };

struct Row {
  BoundaryKind kind;
  Spread from, to;
  Shape input;  // for W ranks: dims that are multiplied by W when they are split
  int dim, other_dim;
};

// Sizes are multiplied by 12 = lcm(1, 2, 3, 4) where a rank count must divide them.
const Row kRows[] = {
    {BoundaryKind::copy_all_reduce, Spread::replicated, Spread::varying, Shape{3, 5}, 0, 1},
    {BoundaryKind::all_reduce_copy, Spread::varying, Spread::replicated, Shape{3, 5}, 0, 1},
    {BoundaryKind::slice_all_gather, Spread::replicated, Spread::varying, Shape{12, 5}, 0, 1},
    {BoundaryKind::slice_all_gather, Spread::replicated, Spread::varying, Shape{5, 12, 3}, 1, 0},
    {BoundaryKind::all_gather_slice, Spread::varying, Spread::replicated, Shape{3, 5}, 0, 1},
    {BoundaryKind::all_gather_slice, Spread::varying, Spread::replicated, Shape{3, 5, 2}, 2, 1},
    {BoundaryKind::all_gather_reduce_scatter, Spread::varying, Spread::varying, Shape{3, 5}, 0, 1},
    {BoundaryKind::all_gather_reduce_scatter, Spread::varying, Spread::varying, Shape{2, 3, 5}, 1, 0},
    {BoundaryKind::reduce_scatter_all_gather, Spread::varying, Spread::varying, Shape{12, 5}, 0, 1},
    {BoundaryKind::reduce_scatter_all_gather, Spread::varying, Spread::varying, Shape{2, 12, 5}, 1, 0},
    {BoundaryKind::all_reduce_all_reduce, Spread::varying, Spread::varying, Shape{3, 5}, 0, 1},
    {BoundaryKind::all_to_all_all_to_all, Spread::varying, Spread::varying, Shape{3, 12, 2}, 0, 1},
    {BoundaryKind::all_to_all_all_to_all, Spread::varying, Spread::varying, Shape{2, 3, 12}, 1, 2},
};

double inner(Gang& gang, Spread spread, const Tensor& a, const Tensor& b) {
  const Vector x = get(a), y = get(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return gang.all_sum(Channel::user, sum) / (spread == Spread::replicated ? gang.size() : 1);
}

// Replicated data is the same on every rank; the gradient of replicated data is, too.
Tensor random_of(Gang& gang, Spread spread, const Shape& shape, uint32_t seed) {
  const uint32_t own = spread == Spread::varying ? static_cast<uint32_t>(gang.rank()) : 0;
  return make(gang.device(), DType::f64, shape,
              random_vector(static_cast<size_t>(shape.count()), seed + own));
}

struct Rig {
  explicit Rig(Gang& gang)
      : ops(make_ops(gang.owner()->device_ptr())),
        temporaries(gang.device().allocator()),
        frame(gang.device().allocator()),
        ctx{.ops = *ops, .stream = gang.device().stream(), .temporaries = temporaries} {}
  std::unique_ptr<Ops> ops;
  Stack temporaries;
  Frame frame;
  Context ctx;
};

TEST(Boundary, EachPairIsAdjointInItsOwnInnerProducts) {
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [](Gang& gang) {
      for (const Row& row : kRows)
        for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
          Rig rig(gang);
          rig.frame.recompute = recompute;
          const ModulePtr boundary =
              make_boundary(row.kind, gang.shared_from_this(), Channel::tp, row.dim, row.other_dim);
          const Tensor x = random_of(gang, row.from, row.input, 10);
          const Tensor fx = boundary->forward1(rig.ctx, x, &rig.frame);
          const Tensor y = random_of(gang, row.to, fx.shape(), 50);
          const Tensor back = boundary->backward1(rig.ctx, y, rig.frame);
          EXPECT_EQ(back.shape(), x.shape());
          const double left = inner(gang, row.to, fx, y), right = inner(gang, row.from, x, back);
          EXPECT_NEAR(left, right, 1e-12 * (1 + std::abs(left))) << name(row.kind) << " over " << gang.size();
        }
    });
}

// The adjoint test sees no permutation that both halves share: expected values for the moving kinds.
TEST(Boundary, PiecesStandInRankOrder) {
  run_ranks(3, [](Gang& gang) {
    Rig rig(gang);
    const auto run = [&](BoundaryKind kind, const Shape& shape, const Vector& values, int dim, int other) {
      const Tensor x = make(gang.device(), DType::f64, shape, values);
      return get(make_boundary(kind, gang.shared_from_this(), Channel::tp, dim, other)
                     ->forward1(rig.ctx, x, nullptr));
    };
    const double r = gang.rank();
    EXPECT_EQ(run(BoundaryKind::all_gather_slice, {2, 1}, {r, 10 + r}, 1, 0), (Vector{0, 1, 2, 10, 11, 12}));
    EXPECT_EQ(run(BoundaryKind::all_gather_slice, {1, 2}, {r, 10 + r}, 0, 1), (Vector{0, 10, 1, 11, 2, 12}));
    EXPECT_EQ(run(BoundaryKind::slice_all_gather, {2, 3}, {0, 1, 2, 3, 4, 5}, 1, 0), (Vector{r, 3 + r}));
    EXPECT_EQ(run(BoundaryKind::reduce_scatter_all_gather, {2, 3}, {r, 1, 2, 3, 4, 5}, 1, 0),
              (gang.rank() == 0 ? Vector{3, 9} : Vector{3 * r, 9 + 3 * r}));
    // Rank r holds row r of [[0 1 2] [3 4 5] [6 7 8]], then column r.
    EXPECT_EQ(run(BoundaryKind::all_to_all_all_to_all, {1, 3}, {3 * r, 3 * r + 1, 3 * r + 2}, 0, 1),
              (Vector{r, 3 + r, 6 + r}));
  });
}

TEST(Boundary, DimThatDoesNotDivideIsRefusedWithItsNumbers) {
  run_ranks(2, [](Gang& gang) {
    Rig rig(gang);
    const Tensor x = random_of(gang, Spread::varying, Shape{2, 5}, 1);
    const ModulePtr boundary =
        make_boundary(BoundaryKind::reduce_scatter_all_gather, gang.shared_from_this(), Channel::tp, 1);
    expect_refusal(Code::invalid_argument, [&] { boundary->forward1(rig.ctx, x, nullptr); },
                   {"reduce_scatter|all_gather", "[2, 5]", "2 ranks"});
  });
}

// Counts its weight tasks, and those that ran when one collective more than at its creation had begun.
class CountsDrains final : public Module {
 public:
  explicit CountsDrains(Gang& gang) : gang_(gang), calls_(gang.traffic().calls) {}
  int drained = 0, after_start = 0;
  std::atomic<bool>* told = nullptr;  // set by the last task
  const char* kind() const override { return "CountsDrains"; }
  Values forward(Context&, std::span<const Tensor>, Frame*) override { return {}; }
  Values backward(Context&, std::span<const Tensor>, Frame&) override { return {}; }
  void backward_weight(Context&, Frame&, int, const Tensor&) override {
    if (gang_.traffic().calls == calls_ + 1) ++after_start;
    if (++drained == kTasks && told != nullptr) *told = true;
  }
  static constexpr int kTasks = 2;

 private:
  Gang& gang_;
  const uint64_t calls_;
};

// Its temporaries would be used again under the peers' eyes.
TEST(Boundary, AnInterruptBreaksTheGang) {
  std::atomic<bool> interrupted{false};
  run_ranks(2, [&](Gang& root) {
    Rig rig(root);
    const ModulePtr boundary = make_boundary(BoundaryKind::all_reduce_copy, root.duplicate(), Channel::tp);
    const Tensor x = make(root.device(), DType::f64, Shape{2}, {1, 2});
    if (root.rank() == 0) {
      set_interrupt([](void*) { return 1; }, nullptr, nullptr);
      expect_refusal(Code::caller, [&] { boundary->forward1(rig.ctx, x, nullptr); });
      set_interrupt(nullptr, nullptr, nullptr);
      interrupted = true;
    } else {
      while (!interrupted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      expect_refusal(Code::aborted, [&] { boundary->forward1(rig.ctx, x, nullptr); });
    }
  });
}

// After the start: the collective counts as begun. Before the wait, which needs the peer: that one comes only
// when the tasks have run.
TEST(Boundary, PendingWeightTasksRunWhileBackwardTravels) {
  for (const int late : {0, 1}) {
    std::atomic<bool> ran{false};
    run_ranks(2, [&](Gang& gang) {
      Rig rig(gang);
      CountsDrains tasks(gang);
      for (int i = 0; i < CountsDrains::kTasks; ++i) rig.frame.push_weight(tasks, i, Tensor());
      if (gang.rank() != late) tasks.told = &ran;
      const Tensor dy = random_of(gang, Spread::varying, Shape{2, 5}, 1);
      if (gang.rank() == late)
        while (!ran && !gang.error()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      make_boundary(BoundaryKind::copy_all_reduce, gang.shared_from_this(), Channel::tp)
          ->backward1(rig.ctx, dy, rig.frame);
      EXPECT_EQ(tasks.drained, CountsDrains::kTasks);
      EXPECT_EQ(tasks.after_start, CountsDrains::kTasks);
    });
  }
}

TEST(Boundary, DeferredWeightTasksStayPending) {
  run_ranks(2, [](Gang& gang) {
    Rig rig(gang);
    rig.ctx.defer_weight = true;
    CountsDrains tasks(gang);
    rig.frame.push_weight(tasks, 0, Tensor());
    const Tensor dy = random_of(gang, Spread::varying, Shape{2, 5}, 1);
    make_boundary(BoundaryKind::copy_all_reduce, gang.shared_from_this(), Channel::tp)
        ->backward1(rig.ctx, dy, rig.frame);
    EXPECT_EQ(tasks.drained, 0);
    EXPECT_EQ(rig.frame.pending_weight(), 1u);
  });
}

}  // namespace
}  // namespace gangway::test
