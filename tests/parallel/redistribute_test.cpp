// Every redistribution and its gradient pass the adjoint test <F x, y> = <x, F* y> with random f64 data.
// Explicit values are tested too, because the adjoint test does not see a permutation that both directions
// share.
#include "parallel/redistribute.h"
#include "gang/agreement.h"
#include "parallel/collective_call.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "base/interrupt.h"
#include "gang/local/fake.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

using Kind = Placement::Kind;
using Bounds = std::vector<int64_t>;

Placement place(Kind kind, int dim = 0, Bounds bounds = {}) {
  Placement p = Placement::shard("tp", dim, std::move(bounds));
  p.kind = kind;
  return p;
}

std::shared_ptr<Redistribute> over(Gang& gang, const Placement& from, const Placement& to) {
  return make_redistribute(from, to, gang.shared_from_this(), Channel::tp);
}

// The output of forward for these values.
Vector values_of(ModuleRig& rig, const Placement& from, const Placement& to, const Shape& shape,
                 const Vector& values) {
  const Tensor x = make(rig.gang.device(), DType::f64, shape, values);
  return get(over(rig.gang, from, to)->forward_one(rig.ctx, x, nullptr));
}

// The inner product over all ranks. A replicated value is one value that all ranks hold, so it counts once.
double inner(Gang& gang, const Placement& placement, const Tensor& a, const Tensor& b) {
  const Vector x = get(a), y = get(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return gang.agreement().all_sum(Channel::user, sum) / (placement.kind == Kind::replicate ? gang.size() : 1);
}

Tensor random_of(Gang& gang, const Placement& placement, const Shape& shape, uint32_t seed) {
  const uint32_t own = placement.kind == Kind::replicate ? 0 : static_cast<uint32_t>(gang.rank());
  return make(gang.device(), DType::f64, shape,
              random_vector(static_cast<size_t>(shape.count()), seed + own));
}

void expect_adjoint(Gang& gang, ModuleRig& rig, const Placement& from, const Placement& to,
                    const Shape& local, Recompute recompute = Recompute::none) {
  rig.frame.reset();
  rig.frame.recompute = recompute;
  const auto module = over(gang, from, to);
  const Tensor x = random_of(gang, from, local, 10);
  const Tensor fx = module->forward_one(rig.ctx, x, &rig.frame);
  const Tensor y = random_of(gang, to, fx.shape(), 50);
  const Tensor back = module->backward_one(rig.ctx, y, rig.frame);
  EXPECT_EQ(back.shape(), x.shape());
  const Spec in = spec_of(x);
  EXPECT_EQ(module->check_forward(rig.ctx, {&in, 1}).at(0).shape, fx.shape());
  const double left = inner(gang, to, fx, y), right = inner(gang, from, x, back);
  EXPECT_NEAR(left, right, 1e-12 * (1 + std::abs(left)))
      << describe({from}) << " -> " << describe({to}) << " of " << local.text() << " over " << gang.size();
}

// Rows of the table over one axis. A shard stands for shards on every dim.
struct Row {
  Kind from, to;
};
constexpr Row kRows[] = {{Kind::replicate, Kind::varying}, {Kind::partial, Kind::replicate},
                         {Kind::replicate, Kind::shard},   {Kind::shard, Kind::replicate},
                         {Kind::shard, Kind::varying},     {Kind::partial, Kind::shard},
                         {Kind::partial, Kind::varying},   {Kind::shard, Kind::shard}};

const Shape kShapes[] = {{7}, {6, 5}, {2, 3, 4}};

// Splits of `rows`: pieces of 2 rows for each rank, the balanced split, and one that leaves some ranks
// without rows.
std::vector<std::pair<int64_t, Bounds>> cuts(int64_t rows, int ranks) {
  return {{2 * ranks, {}}, {rows, balanced_bounds(rows, ranks)}, {rows, ceil_bounds(rows, ranks)}};
}

int64_t own_rows(const Bounds& bounds, int64_t rows, Gang& gang) {
  const auto r = static_cast<size_t>(gang.rank());
  return bounds.empty() ? rows / gang.size() : bounds[r + 1] - bounds[r];
}

void expect_row_adjoint(Gang& gang, ModuleRig& rig, const Row& row, const Shape& shape) {
  if (row.from != Kind::shard && row.to != Kind::shard)
    return expect_adjoint(gang, rig, place(row.from), place(row.to), shape);
  for (int dim = 0; dim < shape.rank(); ++dim)
    for (const auto& [rows, bounds] : cuts(shape[dim], gang.size())) {
      Shape local = shape;
      local[dim] = row.from == Kind::shard ? own_rows(bounds, rows, gang) : rows;
      if (row.from != row.to) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective})
          expect_adjoint(gang, rig, place(row.from, dim, bounds), place(row.to, dim, bounds), local,
                         recompute);
        continue;
      }
      for (int other = 0; other < shape.rank(); ++other) {
        const int64_t all = other == dim ? rows : shape[other];
        expect_adjoint(gang, rig, place(row.from, dim, bounds),
                       place(row.to, other, balanced_bounds(all, gang.size())), local);
      }
    }
}

TEST(Redistribute, EachRowIsAdjointInItsOwnInnerProducts) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    run_ranks(ranks, [](Gang& gang) {
      ModuleRig rig(gang);
      for (const Row& row : kRows)
        for (const Shape& shape : kShapes) expect_row_adjoint(gang, rig, row, shape);
    });
}

TEST(Redistribute, PiecesStandInRankOrder) {
  run_ranks(3, [](Gang& gang) {
    ModuleRig rig(gang);
    const double r = gang.rank();
    const Placement whole = place(Kind::replicate), parts = place(Kind::partial);
    EXPECT_EQ(values_of(rig, place(Kind::shard, 1), whole, {2, 1}, {r, 10 + r}),
              (Vector{0, 1, 2, 10, 11, 12}));
    EXPECT_EQ(values_of(rig, place(Kind::shard, 0), whole, {1, 2}, {r, 10 + r}),
              (Vector{0, 10, 1, 11, 2, 12}));
    EXPECT_EQ(values_of(rig, whole, place(Kind::shard, 1), {2, 3}, {0, 1, 2, 3, 4, 5}), (Vector{r, 3 + r}));
    EXPECT_EQ(values_of(rig, parts, place(Kind::shard, 1), {2, 3}, {r, 1, 2, 3, 4, 5}),
              (gang.rank() == 0 ? Vector{3, 9} : Vector{3 * r, 9 + 3 * r}));
    // Rank r first holds row r of [[0 1 2] [3 4 5] [6 7 8]], and then column r.
    EXPECT_EQ(
        values_of(rig, place(Kind::shard, 0), place(Kind::shard, 1), {1, 3}, {3 * r, 3 * r + 1, 3 * r + 2}),
        (Vector{r, 3 + r, 6 + r}));
  });
}

TEST(Redistribute, UnevenPiecesAndRanksWithoutAnyStandInRankOrder) {
  run_ranks(3, [](Gang& gang) {
    ModuleRig rig(gang);
    const int r = gang.rank();
    const Bounds bounds = {0, 2, 2, 3};  // rank 1 holds nothing
    const Vector own = r == 0 ? Vector{0, 1, 10, 11} : r == 1 ? Vector{} : Vector{2, 12};
    const Shape shape{2, r == 0 ? 2 : r == 1 ? 0 : 1};
    EXPECT_EQ(values_of(rig, place(Kind::shard, 1, bounds), place(Kind::varying), shape, own),
              (Vector{0, 1, 2, 10, 11, 12}));
    EXPECT_EQ(
        values_of(rig, place(Kind::partial), place(Kind::shard, 1, bounds), {2, 3}, {0, 1, 2, 10, 11, 12}),
        (r == 0   ? Vector{0, 3, 30, 33}
         : r == 1 ? Vector{}
                  : Vector{6, 36}));
    // Ranks hold columns 0 1, none, and 2. Afterwards they hold no rows, row 0 and row 1.
    EXPECT_EQ(values_of(rig, place(Kind::shard, 1, bounds), place(Kind::shard, 0, {0, 0, 1, 2}), shape, own),
              (r == 0   ? Vector{}
               : r == 1 ? Vector{0, 1, 2}
                        : Vector{10, 11, 12}));
    // Only rank 2 holds the value.
    const Bounds at_2 = {0, 0, 0, 3};
    EXPECT_EQ(values_of(rig, place(Kind::shard, 0, at_2), place(Kind::varying), {r == 2 ? 3 : 0},
                        r == 2 ? Vector{7, 8, 9} : Vector{}),
              (Vector{7, 8, 9}));
    EXPECT_EQ(values_of(rig, place(Kind::partial), place(Kind::shard, 0, at_2), {3}, {7, 8, 9}),
              (r == 2 ? Vector{21, 24, 27} : Vector{}));
  });
}

TEST(Redistribute, StridedInputsAndIntegersTravel) {
  run_ranks(2, [](Gang& gang) {
    ModuleRig rig(gang);
    const double r = gang.rank();
    // shape [3, 2]
    const Tensor x = make(gang.device(), DType::f64, {2, 3}, {r, 1, 2, 3, 4, 5}).transpose(0, 1);
    EXPECT_EQ(get(over(gang, place(Kind::partial), place(Kind::replicate))->forward_one(rig.ctx, x, nullptr)),
              (Vector{1, 6, 2, 8, 4, 10}));
    const Tensor ids = make_ids(gang.device(), {1, 2}, {gang.rank(), 5});
    const Tensor all =
        over(gang, place(Kind::shard, 1), place(Kind::varying))->forward_one(rig.ctx, ids, nullptr);
    const HostMemory host(all);
    EXPECT_EQ(std::vector<int64_t>(host.data<int64_t>(), host.data<int64_t>() + 4),
              (std::vector<int64_t>{0, 5, 1, 5}));
  });
}

// Axis a has 2 ranks and axis b has 3. Ranks are row-major.
GridGangs grid_of(Gang& root, bool whole) {
  const int a = root.rank() / 3, b = root.rank() % 3;
  return {{{"a", root.split(b, a)}, {"b", root.split(a, b)}}, whole ? root.shared_from_this() : nullptr};
}

Tensor box_of(Gang& gang, const Layout& layout, const Shape& global, const Vector& values) {
  std::vector<int> place;
  for (const Placement& p : layout) place.push_back(p.axis == "a" ? gang.rank() / 3 : gang.rank() % 3);
  const Tensor whole = make(gang.device(), DType::f64, global, values);
  const Tensor part = slice(whole, local_box(layout, global, place));
  const Tensor own = Tensor::allocate(gang.device().allocator(), DType::f64, part.shape());
  make_ops(gang.owner()->device_ptr())->cast(part, own, gang.device().stream());
  return own;
}

TEST(Redistribute, SeveralAxesGiveWhatTheirLayoutsSay) {
  run_ranks(6, [](Gang& gang) {
    const Shape global{12, 6};
    const Vector values = random_vector(72, 3);
    const auto s = [](const char* axis, int dim, Bounds bounds) {
      return Placement::shard(axis, dim, std::move(bounds));
    };
    const Layout layouts[] = {{s("a", 0, {0, 6, 12}), s("b", 0, {0, 2, 4, 6})},
                              {s("b", 0, {0, 4, 8, 12}), s("a", 0, {0, 2, 4})},
                              {s("a", 0, {0, 6, 12}), s("b", 1, {0, 2, 4, 6})},
                              {s("b", 0, {0, 1, 8, 12}), s("a", 1, {0, 5, 6})},
                              {s("b", 1, {0, 2, 4, 6})},
                              {}};
    const GridGangs gangs = grid_of(gang, true);
    int moved = 0;
    for (const Layout& from : layouts)
      for (const Layout& to : layouts) {
        ModuleRig rig(gang);
        Redistribute module(from, to, gangs, Channel::tp);
        const Tensor x = box_of(gang, from, global, values);
        try {
          const Tensor y = module.forward_one(rig.ctx, x, &rig.frame);
          EXPECT_EQ(get(y), get(box_of(gang, to, global, values)))
              << describe(from) << " -> " << describe(to);
          EXPECT_EQ(get(module.backward_one(rig.ctx, y, rig.frame)), get(x))
              << describe(from) << " -> " << describe(to);
          ++moved;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::not_supported) << error.message();
        }
      }
    EXPECT_GE(moved, 30);
  });
}

TEST(Redistribute, PiecesNestedInAnotherOrderTakeAGangOfTheGrid) {
  run_ranks(6, [](Gang& gang) {
    ModuleRig rig(gang);
    const Layout from = {Placement::shard("a", 0, {}), Placement::shard("b", 0, {})}, to = {from[1], from[0]};
    Redistribute module(from, to, grid_of(gang, false), Channel::tp);
    const Spec x{DType::f64, Shape{2}};
    expect_refusal(Code::not_supported,
                   [&] {
                     module.check_forward(rig.ctx, {&x, 1});
                   },
                   {"a gang of the whole grid"});
  });
}

TEST(Redistribute, CheckForwardRefusesWithTheNumbersAndGivesTheOutput) {
  run_ranks(2, [](Gang& gang) {
    ModuleRig rig(gang);
    const Spec x{DType::f32, Shape{2, 5}}, flags{DType::boolean, Shape{4}};
    const auto scatter = over(gang, place(Kind::partial), place(Kind::shard, 1));
    const Error refused =
        expect_refusal(Code::invalid_argument,
                       [&] {
                         scatter->check_forward(rig.ctx, {&x, 1});
                       },
                       {"redistribute tp: Partial -> tp: Shard(1): dim 1 of [2, 5] has 5 rows",
                        "not a multiple of its 2 ranks"});
    EXPECT_EQ(expect_refusal(
                  Code::invalid_argument,
                  [&] {
                    scatter->forward_one(rig.ctx, random_of(gang, place(Kind::partial), {2, 5}, 1), nullptr);
                  })
                  .message(),
              refused.message());
    expect_refusal(
        Code::invalid_argument,
        [&] {
          over(gang, place(Kind::partial), place(Kind::shard))->check_forward(rig.ctx, {&flags, 1});
        },
        {"bool cannot be summed"});
    const Spec pair[] = {x, x};
    expect_refusal(Code::invalid_argument, [&] { scatter->check_forward(rig.ctx, pair); },
                   {"takes one input, but got 2"});
    const Specs out =
        over(gang, place(Kind::shard, 1), place(Kind::varying))->check_forward(rig.ctx, {&x, 1});
    EXPECT_EQ(out.at(0).text(), "f32 [2, 10]");
    expect_refusal(Code::invalid_argument, [&] { over(gang, place(Kind::varying), place(Kind::replicate)); },
                   {"no collective over tp"});
    expect_refusal(Code::invalid_argument,
                   [&] { make_redistribute(place(Kind::shard), place(Kind::varying), nullptr, Channel::tp); },
                   {"the gang of axis tp is null"});
    EXPECT_EQ(gang.traffic().calls, 0u);
  });
}

// The bytes that this rank receives, by the formulas of each collective over W ranks, for n bytes of the
// whole value.
TEST(Redistribute, BytesMovedAreThoseOfTheFormula) {
  for (const int W : {1, 2, 4, 8}) {
    GangOptions options = thread_rank_options();
    options.device = "cpu";  // a fake gang works on memory of the host
    const GangPtr gang = Gang::create_fake(0, W, options, true);
    const auto bytes = [&](const Placement& from, const Placement& to, const Shape& local) {
      ModuleRig rig(*gang);
      const size_t before = recorded(gang->engine()).size();
      const Tensor x = random_of(*gang, from, local, 1);
      const auto module = over(*gang, from, to);
      const Tensor y = module->forward_one(rig.ctx, x, &rig.frame);
      module->backward_one(rig.ctx, y, rig.frame);
      uint64_t forward = 0, backward = 0, calls = 0;
      const auto records = recorded(gang->engine());
      for (size_t i = before; i < records.size(); ++i, ++calls) {
        EXPECT_FALSE(records[i].host_waited);
        EXPECT_TRUE(records[i].ordered);
        (calls == 0 ? forward : backward) += records[i].bytes;
      }
      return std::pair(forward, backward);
    };
    using Pair = std::pair<uint64_t, uint64_t>;
    const auto w = static_cast<uint64_t>(W);
    const uint64_t others = 6 * 8 * (w - 1);
    const Shape piece{2, 3}, value{2 * W, 3};
    const Placement split = place(Kind::shard, 0), columns = place(Kind::shard, 1);
    EXPECT_EQ(bytes(split, place(Kind::varying), piece), (Pair{others, others}));
    EXPECT_EQ(bytes(place(Kind::partial), split, value), (Pair{others, others}));
    EXPECT_EQ(bytes(place(Kind::partial), place(Kind::varying), value), (Pair{2 * others, 2 * others}));
    EXPECT_EQ(bytes(split, columns, {3, W}), (Pair{24 * (w - 1), 24 * (w - 1)}));
    // In these pairs one direction moves nothing.
    EXPECT_EQ(bytes(place(Kind::partial), place(Kind::replicate), value), (Pair{2 * others, 0}));
    EXPECT_EQ(bytes(place(Kind::replicate), place(Kind::varying), value), (Pair{2 * others, 0}));
    EXPECT_EQ(bytes(place(Kind::replicate), split, value), (Pair{others, 0}));
    EXPECT_EQ(bytes(split, place(Kind::replicate), piece), (Pair{others, 0}));
    // Uneven pieces: rank 0 of a fake gang holds the largest.
    const Bounds bounds = balanced_bounds(2 * W + 1, W);
    EXPECT_EQ(bytes(place(Kind::shard, 0, bounds), place(Kind::varying), {bounds[1], 3}),
              (W == 1 ? Pair{0, 0} : Pair{(2 * w - 2) * 24, 3 * 24 * (w - 1)}));
  }
}

// --- the two halves of a redistribution

// Counts the deferred weight gradients that ran, and those that ran after exactly one more collective had
// started.
class CountsDrains final : public Module {
 public:
  explicit CountsDrains(Gang& gang) : gang_(gang), calls_(gang.traffic().calls) {}
  int drained = 0, after_start = 0;
  std::atomic<bool>* told = nullptr;  // set by the last of them
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

// After an interrupt its temporaries would be reused while peers still read them, so the gang breaks.
TEST(Redistribute, AnInterruptBreaksTheGang) {
  std::atomic<bool> interrupted{false};
  run_ranks(2, [&](Gang& root) {
    ModuleRig rig(root);
    const GangPtr gang = root.duplicate();
    const auto module = over(*gang, place(Kind::partial), place(Kind::replicate));
    const Tensor x = make(root.device(), DType::f64, Shape{2}, {1, 2});
    if (root.rank() == 0) {
      set_interrupt([](void*) { return 1; }, nullptr, nullptr);
      const CollectiveCall call({&gang, 1}, "forward");
      expect_refusal(Code::caller, [&] { call.run([&] { module->forward_one(rig.ctx, x, nullptr); }); });
      set_interrupt(nullptr, nullptr, nullptr);
      interrupted = true;
    } else {
      while (!interrupted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      expect_refusal(Code::aborted, [&] { module->forward_one(rig.ctx, x, nullptr); });
    }
  });
}

// They run after the start, when the collective counts as started, and before the wait for the peer: the peer
// takes part only after they have run.
TEST(Redistribute, PendingWeightTasksRunWhileBackwardTravels) {
  for (const int late : {0, 1}) {
    std::atomic<bool> ran{false};
    run_ranks(2, [&](Gang& gang) {
      ModuleRig rig(gang);
      CountsDrains tasks(gang);
      for (int i = 0; i < CountsDrains::kTasks; ++i) rig.frame.push_weight(tasks, i, Tensor());
      if (gang.rank() != late) tasks.told = &ran;
      const Tensor dy = random_of(gang, place(Kind::varying), Shape{2, 5}, 1);
      if (gang.rank() == late)
        while (!ran && !gang.error()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      over(gang, place(Kind::replicate), place(Kind::varying))->backward_one(rig.ctx, dy, rig.frame);
      EXPECT_EQ(tasks.drained, CountsDrains::kTasks);
      EXPECT_EQ(tasks.after_start, CountsDrains::kTasks);
    });
  }
}

TEST(Redistribute, DeferredWeightTasksStayPending) {
  run_ranks(2, [](Gang& gang) {
    ModuleRig rig(gang);
    rig.ctx.defer_weight = true;
    CountsDrains tasks(gang);
    rig.frame.push_weight(tasks, 0, Tensor());
    const Tensor dy = random_of(gang, place(Kind::varying), Shape{2, 5}, 1);
    over(gang, place(Kind::replicate), place(Kind::varying))->backward_one(rig.ctx, dy, rig.frame);
    EXPECT_EQ(tasks.drained, 0);
    EXPECT_EQ(rig.frame.pending_weight(), 1u);
  });
}

// Computing between the halves changes neither its own results nor those of the redistributions, in both
// directions and with two redistributions at once.
TEST(Redistribute, ComputeFitsBetweenTheHalves) {
  run_ranks(4, [](Gang& gang) {
    ModuleRig rig(gang);
    const double r = gang.rank();
    const auto gather = over(gang, place(Kind::shard, 1), place(Kind::varying));
    const auto sum = over(gang, place(Kind::partial), place(Kind::varying));
    const Tensor x = make(gang.device(), DType::f64, {2, 1}, {r, 10 + r});
    const Tensor other = make(gang.device(), DType::f64, {3}, {1, 2, 3});
    const StackScope scope(rig.temporaries);
    auto first = gather->start_forward(rig.ctx, x, &rig.frame);
    auto second = sum->start_forward(rig.ctx, other, &rig.frame);
    EXPECT_TRUE(first.travels());
    const Tensor y = rig.temporaries.allocate(DType::f64, {3});
    rig.ctx.ops.fill(y, 2, rig.ctx.stream);
    rig.ctx.ops.add(other, 3, y, rig.ctx.stream);
    EXPECT_EQ(get(gather->finish(rig.ctx, first)), (Vector{0, 1, 2, 3, 10, 11, 12, 13}));
    EXPECT_EQ(get(sum->finish(rig.ctx, second)), (Vector{4, 8, 12}));
    EXPECT_EQ(get(y), (Vector{5, 8, 11}));
    const Tensor dy = make(gang.device(), DType::f64, {2, 4}, {r, 1, 2, 3, 4, 5, 6, 7});
    auto back = gather->start_backward(rig.ctx, dy, rig.frame);
    rig.ctx.ops.add(other, 1, y, rig.ctx.stream);
    EXPECT_EQ(get(gather->finish(rig.ctx, back)),
              (gang.rank() == 0 ? Vector{6, 16} : Vector{4 * r, 16 + 4 * r}));
    EXPECT_EQ(get(y), (Vector{6, 10, 14}));
  });
}

TEST(Redistribute, AStartedOneThatIsDroppedBreaksItsGang) {
  run_ranks(2, [](Gang& root) {
    ModuleRig rig(root);
    const GangPtr gang = root.duplicate();
    const Tensor x = make(root.device(), DType::f64, Shape{2}, {1, 2});
    const auto module = over(*gang, place(Kind::partial), place(Kind::replicate));
    if (root.rank() == 0) const auto dropped = module->start_forward(rig.ctx, x, nullptr);
    root.barrier();
    expect_refusal(Code::aborted, [&] { module->forward_one(rig.ctx, x, nullptr); },
                   {"started and never finished"});
    root.barrier();
  });
}

}  // namespace
}  // namespace gangway::test
