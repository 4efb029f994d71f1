#include "nn/dropout.h"

#include <algorithm>
#include <array>

#include "nn/documents.h"
#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

struct Extent {
  int64_t rows = 1, tokens = 1, columns = 1;  // tokens of each row, columns of each token
};

Extent extent_of(const Context& ctx, const Shape& x) {
  const int leading = x.rank() > 3 ? 2 : x.rank() - 1;
  int64_t tokens = 1;
  Extent extent;
  for (int d = 0; d < x.rank(); ++d) (d < leading ? tokens : extent.columns) *= x[d];
  if (ctx.rows != 0 && tokens % ctx.rows == 0)
    extent.rows = ctx.rows;
  else if (leading > 0)
    extent.rows = x[0];
  extent.tokens = tokens / extent.rows;
  return extent;
}

}  // namespace

void drop(Context& ctx, uint64_t key, double probability, const ValuePart& part, const Tensor& x,
          const Tensor& y) {
  if (x.count() == 0) return;
  const Extent own = extent_of(ctx, x.shape());
  const Shape flat{own.rows * own.tokens, own.columns};
  DropoutArgs args{.x = x.reshape(flat),
                   .y = y.reshape(flat),
                   .rows = {},
                   .key = key,
                   .probability = probability,
                   .columns = own.columns};
  if (part.along == ValuePart::Along::width) {
    args.first_column = part.rank * own.columns;
    args.columns = part.ranks * own.columns;
  }
  const bool splits_sequence = part.along == ValuePart::Along::sequence && part.ranks > 1;
  const SequencePart context = ctx.documents == nullptr ? SequencePart() : ctx.documents->part();
  if (!splits_sequence && context.ranks == 1) {
    args.first_row = ctx.first_row * own.tokens;
    return ctx.ops.dropout(args, ctx.stream);
  }
  // This rank has the tokens [first, end) of those of its rank of context parallelism.
  const int64_t first = splits_sequence ? part.rank * own.tokens : 0, end = first + own.tokens;
  const int64_t of_context = splits_sequence ? part.ranks * own.tokens : own.tokens;
  const std::array<Chunk, 2> chunks = context.ranks == 1 ? std::array<Chunk, 2>{Chunk{0, 0, of_context}}
                                                         : chunks_of(of_context, context.rank, context.ranks);
  const Tensor all_x = args.x, all_y = args.y;
  for (int64_t row = 0; row < own.rows; ++row)
    for (const Chunk& chunk : chunks) {
      const int64_t from = std::max(first, chunk.local), to = std::min(end, chunk.local + chunk.count);
      if (from >= to) continue;
      const int64_t start = row * own.tokens - first;
      args.x = all_x.slice(0, start + from, start + to);
      args.y = all_y.slice(0, start + from, start + to);
      args.first_row =
          (ctx.first_row + row) * of_context * context.ranks + chunk.position + from - chunk.local;
      ctx.ops.dropout(args, ctx.stream);
    }
}

Dropout::Dropout(double probability, bool owns_input) : probability_(probability), owns_input_(owns_input) {
  if (!(probability >= 0 && probability < 1))
    fail(Code::invalid_argument, "Dropout: probability is ", probability, ", outside of [0, 1)");
}

Specs Dropout::check_forward(Context&, std::span<const Spec> inputs) {
  const Spec& x = first_input(inputs, *this);
  check(x);
  return {x};
}

Values Dropout::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor& x = first_input(inputs, *this);
  check(spec_of(x));
  if (probability_ == 0 || (frame == nullptr && !ctx.training)) return {x};
  const Tensor y = owns_input_ ? x : make_output(ctx, frame, x.dtype(), x.shape());
  drop(ctx, step_seed(ctx, full_name()), probability_, part_, x, y);
  return {y};
}

Values Dropout::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  const Tensor& gradient = first_gradient(dy, *this);
  const Tensor dx = frame.allocate_gradient(gradient.dtype(), gradient.shape());
  if (probability_ == 0)
    ctx.ops.cast(gradient, dx, ctx.stream);
  else
    drop(ctx, step_seed(ctx, full_name()), probability_, part_, gradient, dx);
  return {dx};
}

void Dropout::check(const Spec& x) const {
  if (x.shape.rank() < 1 || !is_floating(x.dtype))
    fail(Code::invalid_argument, "Dropout ", full_name(), ": input is ", x.text(),
         ", wanted a floating dtype and at least one dim");
}

ModulePtr make_dropout(double probability, bool owns_input) {
  return std::make_shared<Dropout>(probability, owns_input);
}

}  // namespace gangway
