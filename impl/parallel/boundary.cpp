#include "parallel/boundary.h"

#include "parallel/interrupted.h"

namespace gangway {
namespace {

// One half of a pair.
enum class Move : uint8_t {
  copy,
  all_reduce,
  all_gather,
  reduce_scatter,
  slice,
  all_to_all,
  all_to_all_back
};

struct Pair {
  Move forward, backward;
  const char* name;
};

Pair pair_of(BoundaryKind kind) {
  switch (kind) {
    case BoundaryKind::copy_all_reduce: return {Move::copy, Move::all_reduce, "copy|all_reduce"};
    case BoundaryKind::all_reduce_copy: return {Move::all_reduce, Move::copy, "all_reduce|copy"};
    case BoundaryKind::all_gather_reduce_scatter:
      return {Move::all_gather, Move::reduce_scatter, "all_gather|reduce_scatter"};
    case BoundaryKind::reduce_scatter_all_gather:
      return {Move::reduce_scatter, Move::all_gather, "reduce_scatter|all_gather"};
    case BoundaryKind::all_gather_slice: return {Move::all_gather, Move::slice, "all_gather|slice"};
    case BoundaryKind::slice_all_gather: return {Move::slice, Move::all_gather, "slice|all_gather"};
    case BoundaryKind::all_reduce_all_reduce:
      return {Move::all_reduce, Move::all_reduce, "all_reduce|all_reduce"};
    case BoundaryKind::all_to_all_all_to_all:
      return {Move::all_to_all, Move::all_to_all_back, "all_to_all|all_to_all"};
  }
  fail(Code::invalid_argument, "boundary ", static_cast<int>(kind), " is unknown (0 to 7)");
}

constexpr int kInput = 0;  // slot

class Boundary final : public Module {
 public:
  Boundary(BoundaryKind kind, GangPtr gang, Channel channel, int dim, int other_dim)
      : pair_(pair_of(kind)), gang_(std::move(gang)), channel_(channel), dim_(dim), other_(other_dim) {}

  const char* kind() const override { return "Boundary"; }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = inputs[0];
    if (pair_.forward == Move::copy) return {x};
    const Shape shape = shape_after(pair_.forward, x);
    const bool again =
        pair_.forward == Move::all_gather && frame != nullptr && frame->recompute == Recompute::selective;
    const Tensor y =
        again ? ctx.temporaries.allocate(x.dtype(), shape) : make_output(ctx, frame, x.dtype(), shape);
    if (again) {
      frame->recomputable(y, *this, 0, RecomputeWhen::when_loaded);
      frame->save(*this, kInput, x);
    }
    run(ctx, pair_.forward, x, y, nullptr);
    return {y};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    if (!dy[0] || pair_.backward == Move::copy) return {dy[0]};
    const Tensor dx = frame.allocate_gradient(dy[0].dtype(), shape_after(pair_.backward, dy[0]));
    run(ctx, pair_.backward, dy[0], dx, ctx.defer_weight ? nullptr : &frame);
    return {dx};
  }

  // The gathered activation is not kept; it is gathered again.
  Tensor recompute(Context& ctx, Frame& frame, int) override {
    const Tensor x = frame.load(ctx, *this, kInput);
    const Tensor y = frame.allocate_gradient(x.dtype(), shape_after(Move::all_gather, x));
    run(ctx, Move::all_gather, x, y, nullptr);
    return y;
  }

 private:
  int64_t ranks() const { return gang_->size(); }

  int64_t divided(const Tensor& x, int dim) const {
    if (dim < 0 || dim >= x.rank() || x.dim(dim) % ranks() != 0)
      fail(Code::invalid_argument, "boundary ", pair_.name, ": dim ", dim, " of ", x.text(),
           " does not divide over ", ranks(), " ranks");
    return x.dim(dim) / ranks();
  }

  Shape shape_after(Move move, const Tensor& x) const {
    Shape shape = x.shape();
    const auto gather = [&](int dim) {
      if (dim < 0 || dim >= x.rank())
        fail(Code::invalid_argument, "boundary ", pair_.name, ": ", x.text(), " has no dim ", dim);
      shape[dim] *= ranks();
    };
    switch (move) {
      case Move::copy:
      case Move::all_reduce: break;
      case Move::all_gather: gather(dim_); break;
      case Move::reduce_scatter:
      case Move::slice: shape[dim_] = divided(x, dim_); break;
      case Move::all_to_all:
        gather(dim_);
        shape[other_] = divided(x, other_);
        break;
      case Move::all_to_all_back:
        gather(other_);
        shape[dim_] = divided(x, dim_);
        break;
    }
    return shape;
  }

  // Pieces of `x` along `dim`, one after the other.
  Tensor packed(Context& ctx, const Tensor& x, int dim) const {
    if (dim == 0 && x.contiguous()) return x;
    const int64_t piece = x.dim(dim) / ranks();
    Shape shape = x.shape();
    shape[dim] = piece;
    const Tensor out = ctx.temporaries.allocate(x.dtype(), x.shape());
    for (int64_t r = 0; r < ranks(); ++r)
      ctx.ops.cast(x.slice(dim, r * piece, (r + 1) * piece), part(out, shape, r), ctx.stream);
    return out;
  }

  // The r-th of equal consecutive parts of `shape`.
  static Tensor part(const Tensor& of, const Shape& shape, int64_t r) {
    const size_t bytes = static_cast<size_t>(shape.count()) * item_bytes(of.dtype());
    return Tensor(of.buffer(), of.byte_offset() + static_cast<size_t>(r) * bytes, of.dtype(), shape);
  }

  void unpack(Context& ctx, const Tensor& from, const Tensor& y, int dim) const {
    const int64_t piece = y.dim(dim) / ranks();
    Shape shape = y.shape();
    shape[dim] = piece;
    for (int64_t r = 0; r < ranks(); ++r)
      ctx.ops.cast(part(from, shape, r), y.slice(dim, r * piece, (r + 1) * piece), ctx.stream);
  }

  // Starts the collective, drains weight tasks of `overlap` while it travels, waits.
  void collective(Context& ctx, CollectiveOp op, const Tensor& in, const Tensor& out, Frame* overlap) {
    Collective c;
    c.op = op;
    c.in = in.raw();
    c.out = out.raw();
    const bool sums = op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter;
    const auto divide = op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_to_all ? ranks() : 1;
    c.count = static_cast<size_t>(in.count() / divide);
    c.dtype = in.dtype();
    c.reduce = sums ? Reduce::sum : Reduce::none;
    const WorkPtr work = gang_->run(channel_, c, &ctx.stream);
    if (overlap != nullptr) overlap->run_weight_gradients(ctx);
    wait_or_break(*gang_, [&] {
      work->order(ctx.stream);
      work->order_input(ctx.stream);
    });
  }

  void run(Context& ctx, Move move, const Tensor& from, const Tensor& y, Frame* overlap) {
    StackScope scope(ctx.temporaries);
    Tensor x = from;
    if (!x.contiguous()) {
      x = ctx.temporaries.allocate(from.dtype(), from.shape());
      ctx.ops.cast(from, x, ctx.stream);
    }
    switch (move) {
      case Move::copy: break;
      case Move::all_reduce: return collective(ctx, CollectiveOp::all_reduce, x, y, overlap);
      case Move::all_gather: return exchange(ctx, CollectiveOp::all_gather, x, y, dim_, overlap);
      case Move::reduce_scatter:
        return collective(ctx, CollectiveOp::reduce_scatter, packed(ctx, x, dim_), y, overlap);
      case Move::slice: {
        const int64_t piece = y.dim(dim_);
        return ctx.ops.cast(x.slice(dim_, gang_->rank() * piece, (gang_->rank() + 1) * piece), y, ctx.stream);
      }
      case Move::all_to_all:
        return exchange(ctx, CollectiveOp::all_to_all, packed(ctx, x, other_), y, dim_, overlap);
      case Move::all_to_all_back:
        return exchange(ctx, CollectiveOp::all_to_all, packed(ctx, x, dim_), y, other_, overlap);
    }
  }

  // Collective whose result comes in pieces along `dim` of y.
  void exchange(Context& ctx, CollectiveOp op, const Tensor& x, const Tensor& y, int dim, Frame* overlap) {
    if (dim == 0) return collective(ctx, op, x, y, overlap);
    const Tensor pieces = ctx.temporaries.allocate(y.dtype(), y.shape());
    collective(ctx, op, x, pieces, overlap);
    unpack(ctx, pieces, y, dim);
  }

  const Pair pair_;
  const GangPtr gang_;
  const Channel channel_;
  const int dim_, other_;
};

}  // namespace

const char* name(BoundaryKind kind) noexcept {
  const auto number = static_cast<int>(kind);
  return number < 0 || number > 7 ? "unknown" : pair_of(kind).name;
}

ModulePtr make_boundary(BoundaryKind kind, GangPtr gang, Channel channel, int dim, int other_dim) {
  return std::make_shared<Boundary>(kind, std::move(gang), channel, dim, other_dim);
}

}  // namespace gangway
