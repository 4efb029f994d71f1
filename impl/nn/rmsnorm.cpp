// Letters: T tokens, D width.
#include "nn/rmsnorm.h"

#include "nn/gradient.h"

namespace gangway {
namespace {

constexpr int kSum = 0, kRstd = 1;  // slots of the frame
constexpr int kY = 0;               // index of the tensor that recompute() makes

int64_t rows(const Tensor& x) { return x.count() / x.dim(-1); }

}  // namespace

RmsNorm::RmsNorm(int64_t dim, double eps, bool owns_gradient, double offset)
    : eps_(eps), offset_(offset), owns_gradient_(owns_gradient) {
  if (dim < 1 || !(eps > 0))
    fail(Code::invalid_argument, "RMSNorm: dim is ", dim, ", eps is ", eps, "; both are above 0");
  if (offset != 0 && offset != 1)
    fail(Code::invalid_argument, "RMSNorm: norm_offset is ", offset,
         "; it is 0, or 1 if the weights count from 1");
  add_parameter("weight", Shape{dim}, offset == 0 ? Init::ones() : Init::zeros());
}

void RmsNorm::add_options(CallSignature& signature) const {
  signature.add("eps", eps_);
  signature.add("offset", offset_);
  signature.add("rows", row_sums_ == nullptr ? "whole" : row_sums_->name());
}

Specs RmsNorm::check_forward(Context&, std::span<const Spec> inputs) {
  const Spec& x = first_input(inputs, *this);
  check(x, inputs.size() > 1 && inputs[1].dtype != DType{} ? inputs[1] : x);
  return {{x.dtype, x.shape}, {x.dtype, x.shape}};
}

Values RmsNorm::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor& x = first_input(inputs, *this);
  const bool with_residual = inputs.size() > 1 && inputs[1];
  check(spec_of(x), spec_of(with_residual ? inputs[1] : x));
  const bool again = frame != nullptr && (owns_gradient_ || frame->recompute == Recompute::selective);
  const Tensor rstd = make_output(ctx, frame, statistics_dtype(x.dtype()), Shape{rows(x)});
  const Tensor y =
      again ? ctx.temporaries.allocate(x.dtype(), x.shape()) : make_output(ctx, frame, x.dtype(), x.shape());
  if (again)
    frame->slots().recomputable(y, *this, kY,
                                owns_gradient_ ? RecomputeWhen::in_backward : RecomputeWhen::when_loaded);
  const bool apart = with_residual && !owns_gradient_;
  const Tensor sum = apart ? make_output(ctx, frame, x.dtype(), x.shape()) : x;
  RmsNormArgs args{.x = x.flatten2(),
                   .residual = {},
                   .weight = {},
                   .y = y.flatten2(),
                   .sum = {},
                   .rstd = rstd,
                   .eps = eps_,
                   .offset = offset_};
  if (with_residual) {
    args.residual = inputs[1].flatten2();
    args.sum = sum.flatten2();  // over x in a block, where no other layer reads x
  }
  normalize(ctx, args);
  if (frame != nullptr) {
    frame->slots().save(*this, kSum, sum);
    frame->slots().save(*this, kRstd, rstd);
  }
  return {y, sum};
}

Values RmsNorm::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  const Tensor sum = frame.slots().load(ctx, *this, kSum);
  const Tensor dx = frame.allocate_gradient(sum.dtype(), sum.shape());
  StackScope scope(ctx.temporaries);
  RmsNormBackwardArgs args{.dy = first_gradient(dy, *this).flatten2(),
                           .x = sum.flatten2(),
                           .weight = as_dtype(ctx, value_of(*parameters()[0]), sum.dtype()),
                           .rstd = frame.slots().load(ctx, *this, kRstd),
                           .dsum = {},
                           .dx = dx.flatten2(),
                           .dweight = {},
                           .y = {},
                           .offset = offset_};
  if (dy.size() > 1 && dy[1]) args.dsum = dy[1].flatten2();
  const bool y_again = owns_gradient_ && frame.slots().needs_recompute(*this, kY);
  if (y_again) args.y = args.dy;
  if (wants_gradient(*parameters()[0])) args.dweight = gradient_to_add(ctx, *parameters()[0]);
  if (row_sums_ != nullptr) {
    args.dots =
        sums_of_rows(ctx, {.x = args.x, .y = args.dy, .weight = args.weight, .out = {}, .offset = offset_});
    args.width = width();
  }
  ctx.ops.rmsnorm_backward(args, ctx.stream);
  if (y_again) frame.slots().set_recomputed(*this, kY, dy[0]);
  return {dx, dx};
}

Tensor RmsNorm::recompute(Context& ctx, Frame& frame, int) {
  const Tensor sum = frame.slots().load(ctx, *this, kSum);
  const Tensor y = frame.allocate_gradient(sum.dtype(), sum.shape());
  StackScope scope(ctx.temporaries);
  const Tensor rstd = ctx.temporaries.allocate(statistics_dtype(sum.dtype()), Shape{rows(sum)});
  normalize(ctx, {.x = sum.flatten2(),
                  .residual = {},
                  .weight = {},
                  .y = y.flatten2(),
                  .sum = {},
                  .rstd = rstd,
                  .eps = eps_,
                  .offset = offset_});
  return y;
}

int64_t RmsNorm::local_width() const { return spec_of(*parameters()[0]).shape[0]; }

void RmsNorm::normalize(Context& ctx, RmsNormArgs args) const {
  const StackScope scope(ctx.temporaries);
  args.weight = as_dtype(ctx, value_of(*parameters()[0]), args.x.dtype());
  if (row_sums_ != nullptr) {
    args.squares = sums_of_rows(ctx, {.x = args.x, .y = args.x, .weight = {}, .out = {}});
    args.width = width();
  }
  ctx.ops.rmsnorm(args, ctx.stream);
}

Tensor RmsNorm::sums_of_rows(Context& ctx, RowDotArgs args) const {
  args.out = ctx.temporaries.allocate(statistics_dtype(args.x.dtype()), Shape{args.x.dim(0)});
  ctx.ops.row_dot(args, ctx.stream);
  row_sums_->sum(ctx, args.out);
  return args.out;
}

void RmsNorm::check(const Spec& x, const Spec& residual) const {
  if (x.shape.rank() < 1 || x.shape.back() != local_width())
    fail(Code::invalid_argument, "RMSNorm ", full_name(), ": input is ", x.text(), ", its last dim must be ",
         local_width());
  if (!(residual.shape == x.shape) || residual.dtype != x.dtype)
    fail(Code::invalid_argument, "RMSNorm ", full_name(), ": input is ", x.text(), " and residual is ",
         residual.text(), "; they must be alike");
}

ModulePtr make_rmsnorm(int64_t dim, double eps, bool owns_gradient, double offset) {
  return std::make_shared<RmsNorm>(dim, eps, owns_gradient, offset);
}

}  // namespace gangway
