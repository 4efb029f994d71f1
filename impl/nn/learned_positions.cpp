// Letters: B batch, S sequence, D width.
#include "nn/documents.h"
#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

constexpr int kIds = 0;  // slot of the frame: the positions as ids of rows; absent: 0, 1, 2, ... in each row

class LearnedPositions final : public Module {
 public:
  LearnedPositions(int64_t positions, int64_t dim, double deviation) {
    if (positions < 1 || dim < 1)
      fail(Code::invalid_argument, "LearnedPositions: positions is ", positions, " and dim is ", dim,
           "; both are 1 or more");
    add_parameter("weight", Shape{positions, dim}, Init::normal(deviation));
    weight().rows_are_ids = true;
  }

  const char* kind() const override { return "LearnedPositions"; }
  bool is_linear() const override { return true; }
  bool backward_reads_values() const override { return false; }
  // It adds something to each token: the output lies as the input does.
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {}, .output = {DataFlow::kInput}, .mixes_tokens = true};
  }

  Specs check_forward(Context&, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x);
    return {x};
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    check(spec_of(x));
    const Tensor y = make_output(ctx, frame, x.dtype(), x.shape());
    const Tensor ids = position_ids(ctx, x.dim(1), frame);
    ctx.ops.cast(x, y, ctx.stream);
    const StackScope scope(ctx.temporaries);
    const int64_t dim = x.dim(2), rows = ids ? ids.count() : x.dim(1);
    Tensor vectors = value_of(weight());
    if (ids) {
      vectors = ctx.temporaries.allocate(x.dtype(), Shape{rows, dim});
      ctx.ops.embedding({.table = value_of(weight()), .ids = ids, .y = vectors}, ctx.stream);
    } else {
      vectors = vectors.slice(0, 0, rows);
    }
    for_each_part(y, rows, [&](const Tensor& part) { ctx.ops.add(vectors, 1, part, ctx.stream); });
    return {y};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor& gradient = first_gradient(dy, *this);
    const Tensor dx = frame.allocate_gradient(gradient.dtype(), gradient.shape());
    ctx.ops.cast(gradient, dx, ctx.stream);
    if (wants_gradient(weight())) frame.push_weight(*this, 0, gradient);
    return {dx};
  }

  void backward_weight(Context& ctx, Frame& frame, int, const Tensor& dy) override {
    const Tensor dweight = gradient_to_add(ctx, weight());
    if (!frame.slots().holds(*this, kIds)) {
      const int64_t first = dy.dim(1) * dy.dim(2);  // elements of the rows that one sequence uses
      const Tensor used = dweight.slice(0, 0, dy.dim(1)).reshape(Shape{first});
      return ctx.ops.column_sum(dy.reshape(Shape{dy.dim(0), first}), used, ctx.stream);
    }
    const Tensor ids = frame.slots().load(ctx, *this, kIds);
    for_each_part(dy, ids.count(), [&](const Tensor& part) {
      ctx.ops.embedding_backward({.ids = ids, .dy = part, .dtable = dweight}, ctx.stream);
    });
  }

 private:
  Parameter& weight() const { return *parameters()[0]; }
  const Documents alone_;  // for a context without documents

  // Calls use(part) for each part of x [B, S, D] of `rows` tokens, as [rows, D].
  template <typename Use>
  static void for_each_part(const Tensor& x, int64_t rows, Use&& use) {
    const Tensor tokens = x.flatten2();
    for (int64_t at = 0; at < tokens.dim(0); at += rows) use(tokens.slice(0, at, at + rows));
  }

  // Returns the positions as the ids of rows, i64 [S] or [B S]; absent: they are 0, 1, 2, ... in each row.
  // With a frame it saves them.
  Tensor position_ids(Context& ctx, int64_t tokens, Frame* frame) {
    const Positions positions = positions_of(ctx, tokens, alone_);
    if (positions.count > weight().shape[0])
      fail(Code::invalid_argument, "LearnedPositions ", full_name(), ": a token has position ",
           positions.count - 1, ", but there are ", weight().shape[0], " (max_positions)");
    if (!positions.rows) return {};
    const Tensor ids = make_output(ctx, frame, DType::i64, Shape{positions.rows.count()});
    // A number that is not negative has its i32 as the lower half of its i64, and zero as the upper half.
    ctx.ops.fill(ids, 0, ctx.stream);
    const int64_t strides[] = {2};
    const Tensor lower(ids.buffer(), ids.byte_offset(), DType::i32, ids.shape(), strides);
    ctx.ops.cast(positions.rows.reshape(ids.shape()), lower, ctx.stream);
    if (frame != nullptr) frame->slots().save(*this, kIds, ids);
    return ids;
  }

  void check(const Spec& x) const {
    const Spec table = spec_of(weight());
    if (x.shape.rank() != 3 || x.shape[2] != table.shape[1] || x.dtype != table.dtype)
      fail(Code::invalid_argument, "LearnedPositions ", full_name(), ": input is ", x.text(), ", wanted ",
           name(table.dtype), " [batch, sequence, ", table.shape[1], "]");
  }
};

}  // namespace

ModulePtr make_learned_positions(int64_t positions, int64_t dim, double deviation) {
  return std::make_shared<LearnedPositions>(positions, dim, deviation);
}

}  // namespace gangway
