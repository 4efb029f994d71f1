#include "parallel/redistribute.h"

#include <algorithm>

namespace gangway {
namespace {

constexpr int kInput = 0;  // slot of the saved input in the frame

// Views the packed elements of `tensor` from element `first` on as a tensor of this shape.
Tensor packed_part(const Tensor& tensor, int64_t first, const Shape& shape) {
  return Tensor(tensor.buffer(),
                tensor.byte_offset() + static_cast<size_t>(first) * item_bytes(tensor.dtype()),
                tensor.dtype(), shape);
}

int64_t packed_count(const std::vector<Box>& boxes) {
  int64_t count = 0;
  for (const Box& box : boxes) count += box.shape.count();
  return count;
}

// Returns whether the memory of `tensor` already holds its boxes packed one after the other.
bool is_packed(const Tensor& tensor, const std::vector<Box>& boxes) {
  if (!tensor.contiguous() || packed_count(boxes) != tensor.count()) return false;
  int64_t first = 0;
  for (const Box& box : boxes) {
    if (box.shape.count() == 0) continue;
    const Tensor part = slice(tensor, box);
    const size_t before = static_cast<size_t>(first) * item_bytes(tensor.dtype());
    if (!part.contiguous() || part.byte_offset() != tensor.byte_offset() + before) return false;
    first += box.shape.count();
  }
  return true;
}

// Calls copy(packed part, part of `tensor`) for every box that is not empty.
template <typename Copy>
void for_each_part(const Tensor& packed, const Tensor& tensor, const std::vector<Box>& boxes, Copy&& copy) {
  int64_t first = 0;
  for (const Box& box : boxes) {
    if (box.shape.count() == 0) continue;
    copy(packed_part(packed, first, box.shape), slice(tensor, box));
    first += box.shape.count();
  }
}

Tensor take(Context& ctx, DType dtype, const Shape& shape) { return ctx.temporaries.allocate(dtype, shape); }

Tensor packed(Context& ctx, const Tensor& tensor, const std::vector<Box>& boxes) {
  if (is_packed(tensor, boxes)) return tensor;
  const Tensor out = take(ctx, tensor.dtype(), Shape{packed_count(boxes)});
  for_each_part(out, tensor, boxes,
                [&](const Tensor& to, const Tensor& from) { ctx.ops.cast(from, to, ctx.stream); });
  return out;
}

// The description of a collective, and the memory of the counts that it points to.
class Record {
 public:
  Record(const Move& move, const Tensor& in, const Tensor& out) {
    c.in = in.raw();
    c.out = out.raw();
    c.dtype = in.dtype();
    fill(move, in.count(), out.count());
  }
  Record(const Record&) = delete;

  Collective c;

 private:
  void fill(const Move& move, int64_t in, int64_t out) {
    switch (move.kind) {
      case MoveKind::slice: fail(Code::internal, "a slice is no collective");
      case MoveKind::all_gather: return per_rank(CollectiveOp::all_gather, move.got);
      case MoveKind::reduce_scatter: return per_rank(CollectiveOp::reduce_scatter, move.sent, Reduce::sum);
      case MoveKind::broadcast: return single(CollectiveOp::broadcast, out, move.root);
      case MoveKind::reduce: return single(CollectiveOp::reduce, in, move.root, Reduce::sum);
      case MoveKind::all_reduce: return single(CollectiveOp::all_reduce, in, -1, Reduce::sum);
      case MoveKind::exchange:
        c.op = CollectiveOp::all_to_all;
        add(move.sent);
        add(move.got);
        c.count = counts_.front();
        if (!move.equal) c.counts = counts_.data();
    }
  }
  void single(CollectiveOp op, int64_t count, int root, Reduce reduce = Reduce::none) {
    c.op = op;
    c.count = static_cast<size_t>(count);
    c.peer = root;
    c.reduce = reduce;
  }
  void per_rank(CollectiveOp op, const std::vector<Box>& parts, Reduce reduce = Reduce::none) {
    c.op = op;
    c.reduce = reduce;
    add(parts);
    c.count = counts_.front();
    const bool equal = std::all_of(counts_.begin(), counts_.end(), [&](size_t n) { return n == c.count; });
    if (!equal) c.counts = counts_.data();
  }
  void add(const std::vector<Box>& parts) {
    for (const Box& part : parts) counts_.push_back(static_cast<size_t>(part.shape.count()));
  }
  std::vector<size_t> counts_;
};

bool sums(const RedistributionPlan& plan) {
  return std::any_of(plan.moves.begin(), plan.moves.end(), [](const Move& m) {
    return m.kind == MoveKind::all_reduce || m.kind == MoveKind::reduce_scatter || m.kind == MoveKind::reduce;
  });
}

GridGangs checked(GridGangs gangs) {
  for (const GridGangs::Axis& axis : gangs.axes)
    if (axis.gang == nullptr)
      fail(Code::invalid_argument, "redistribute: the gang of axis ", axis.name, " is null");
  return gangs;
}

// Replaces negative dims, which count from the end, for a tensor with `dims` dims.
Layout counted(Layout layout, int dims) {
  for (Placement& p : layout)
    if (p.kind == Placement::Kind::shard && p.dim < 0) p.dim += dims;
  return layout;
}

}  // namespace

Redistribution::Started::~Started() {
  if (work_ != nullptr) gang_->abort(Error(Code::aborted, "a redistribution was started and never finished"));
}

RankGrid Redistribution::grid() const {
  RankGrid grid;
  for (const GridGangs::Axis& axis : gangs_.axes)
    grid.axes.push_back({axis.name, axis.gang->size(), axis.gang->rank()});
  return grid;
}

const GangPtr& Redistribution::gang(int axis) const {
  if (axis != kWholeGrid) return gangs_.axes[static_cast<size_t>(axis)].gang;
  if (gangs_.whole == nullptr)
    fail(Code::not_supported,
         "redistribute: these pieces are nested in another order after than before, which ",
         "takes a gang of the whole grid");
  return gangs_.whole;
}

Redistribution::Started Redistribution::start(Context& ctx, std::shared_ptr<const RedistributionPlan> plan,
                                              const Tensor& input, const Tensor& output) const {
  Started started;
  started.plan_ = std::move(plan);
  started.value_ = input;
  started.output_ = output;
  advance(ctx, started);
  return started;
}

Tensor Redistribution::finish(Context& ctx, Started& started) const {
  while (started.work_ != nullptr) {
    const WorkPtr work = std::move(started.work_);
    work->order(ctx.stream);
    work->order_input(ctx.stream);
    const Move& move = started.plan_->moves[started.next_];
    if (started.landing_.buffer() != started.target_.buffer() ||
        started.landing_.byte_offset() != started.target_.byte_offset())
      for_each_part(started.landing_, started.target_, move.got,
                    [&](const Tensor& from, const Tensor& to) { ctx.ops.cast(from, to, ctx.stream); });
    started.value_ = started.target_;
    ++started.next_;
    advance(ctx, started);
  }
  return started.value_;
}

void Redistribution::advance(Context& ctx, Started& started) const {
  const std::vector<Move>& moves = started.plan_->moves;
  for (; started.next_ < moves.size(); ++started.next_) {
    const Move& move = moves[started.next_];
    const bool last = started.next_ + 1 == moves.size();
    started.target_ = last ? started.output_ : take(ctx, started.value_.dtype(), move.after);
    if (move.kind != MoveKind::slice) return launch(ctx, move, started);
    if (started.target_.count() != 0)
      ctx.ops.cast(slice(started.value_, move.sent[0]), started.target_, ctx.stream);
    started.value_ = started.target_;
  }
}

void Redistribution::launch(Context& ctx, const Move& move, Started& started) const {
  const Tensor in = packed(ctx, started.value_, move.sent);
  started.landing_ = is_packed(started.target_, move.got)
                         ? started.target_
                         : take(ctx, in.dtype(), Shape{packed_count(move.got)});
  const Record record(move, in, started.landing_);
  started.gang_ = gang(move.axis);
  started.work_ = started.gang_->run(channel_, record.c, &ctx.stream);
}

Redistribute::Redistribute(Layout from, Layout to, GridGangs gangs, Channel channel, Gathered gathered)
    : from_(std::move(from)),
      to_(std::move(to)),
      run_(checked(std::move(gangs)), channel),
      gathered_(gathered) {
  check_redistribution(from_, to_, run_.grid());
}

Redistribute::PlanPtr Redistribute::plan(Direction direction, const Shape& local) {
  PlanPtr& last = plans_[direction];
  if (last != nullptr && last->before == local) return last;
  const Layout from = counted(from_, local.rank()), to = counted(to_, local.rank());
  last = std::make_shared<const RedistributionPlan>(
      direction == kForward ? plan_redistribution(from, to, run_.grid(), local)
                            : plan_redistribution(conjugate(to), conjugate(from), run_.grid(), local));
  return last;
}

// A caller who set sequence_parallel knows of sequences, and not of the dims of a redistribution.
Redistribute::PlanPtr Redistribute::planned_for_caller(const Shape& local) {
  const auto splits_sequence = [&](const Layout& layout) {
    return std::any_of(layout.begin(), layout.end(), [](const Placement& p) {
      return p.kind == Placement::Kind::shard && p.axis == "tp" && p.dim == 1;
    });
  };
  try {
    return plan(kForward, local);
  } catch (const Error& error) {
    if (local.rank() != 3 || !(splits_sequence(from_) || splits_sequence(to_))) throw;
    fail(error.code(), "sequence parallelism splits the sequence (dim 1 of ", local.text(),
         ") over tp: ", error.message());
  }
}

Specs Redistribute::check_forward(Context&, std::span<const Spec> inputs) {
  if (inputs.size() != 1)
    fail(Code::invalid_argument, "redistribute takes one input, but got ", inputs.size());
  const PlanPtr forward = planned_for_caller(inputs[0].shape);
  for (const Move& move : forward->moves) run_.gang(move.axis);
  const DType dtype = inputs[0].dtype;
  if (sums(*forward) && (!is_reducible(dtype) || dtype == DType::boolean))
    fail(Code::invalid_argument, "redistribute ", describe(from_), " -> ", describe(to_), ": ", name(dtype),
         " cannot be summed");
  if (forward->moves.empty()) return {inputs[0]};
  return {{dtype, forward->after}};
}

Tensor Redistribute::output_of(Context& ctx, const Tensor& x, const RedistributionPlan& plan, Frame* frame) {
  if (plan.moves.empty()) return x;
  const bool drops =
      gathered_ == Gathered::again || (frame != nullptr && frame->recompute == Recompute::selective);
  const bool again = frame != nullptr && drops && plan.after.count() > x.count();
  if (!again) return make_output(ctx, frame, x.dtype(), plan.after);
  const Tensor y = take(ctx, x.dtype(), plan.after);
  frame->slots().recomputable(y, *this, 0, RecomputeWhen::when_loaded);
  frame->slots().save(*this, kInput, x);
  return y;
}

Redistribute::Started Redistribute::start_forward(Context& ctx, const Tensor& x, Frame* frame) {
  return start_forward(ctx, x, output_of(ctx, x, *plan(kForward, x.shape()), frame));
}

Redistribute::Started Redistribute::start_backward(Context& ctx, const Tensor& dy, Frame& frame) {
  const PlanPtr backward = plan(kBackward, dy.shape());
  const bool moves = !backward->moves.empty();
  return start_backward(ctx, dy, moves ? frame.allocate_gradient(dy.dtype(), backward->after) : dy);
}

Redistribute::Started Redistribute::start_forward(Context& ctx, const Tensor& x, const Tensor& output) {
  return run_.start(ctx, plan(kForward, x.shape()), x, output);
}

Redistribute::Started Redistribute::start_backward(Context& ctx, const Tensor& dy, const Tensor& output) {
  return run_.start(ctx, plan(kBackward, dy.shape()), dy, output);
}

Values Redistribute::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const PlanPtr forward = plan(kForward, inputs[0].shape());
  // The output is allocated before the scope opens, because it may itself be a temporary.
  const Tensor y = output_of(ctx, inputs[0], *forward, frame);
  const StackScope scope(ctx.temporaries);
  Started started = run_.start(ctx, forward, inputs[0], y);
  return {finish(ctx, started)};
}

Values Redistribute::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  if (!dy[0]) return {Tensor()};
  const StackScope scope(ctx.temporaries);
  Started started = start_backward(ctx, dy[0], frame);
  if (started.travels() && !ctx.defer_weight) frame.run_weight_gradients(ctx);
  return {finish(ctx, started)};
}

Tensor Redistribute::recompute(Context& ctx, Frame& frame, int) {
  const Tensor x = frame.slots().load(ctx, *this, kInput);
  const PlanPtr forward = plan(kForward, x.shape());
  const Tensor y = frame.allocate_gradient(x.dtype(), forward->after);
  const StackScope scope(ctx.temporaries);
  Started started = run_.start(ctx, forward, x, y);
  return finish(ctx, started);
}

std::shared_ptr<Redistribute> make_redistribute(const Placement& from, const Placement& to, GangPtr gang,
                                                Channel channel, Redistribute::Gathered gathered) {
  return std::make_shared<Redistribute>(
      Layout{from}, Layout{to}, GridGangs{{{from.axis, std::move(gang)}}, nullptr}, channel, gathered);
}

}  // namespace gangway
