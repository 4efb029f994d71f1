// Letters: T tokens, D width.
#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

constexpr int kSum = 0, kMean = 1, kRstd = 2;  // slots of the frame
constexpr int kY = 0;                          // index of the tensor that recompute() makes
constexpr size_t kWeight = 0, kBias = 1;       // indices of the parameters

class LayerNorm final : public Module {
 public:
  LayerNorm(int64_t dim, double eps, bool owns_gradient) : eps_(eps), owns_gradient_(owns_gradient) {
    if (dim < 1 || !(eps > 0))
      fail(Code::invalid_argument, "LayerNorm: dim is ", dim, ", eps is ", eps, "; both are above 0");
    add_parameter("weight", Shape{dim}, Init::ones());
    add_parameter("bias", Shape{dim}, Init::zeros());
  }

  const char* kind() const override { return "LayerNorm"; }
  void add_options(CallSignature& signature) const override { signature.add("eps", eps_); }
  size_t output_count(size_t) const override { return 2; }
  size_t gradient_count() const override { return 2; }

  Specs check_forward(Context&, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x, inputs.size() > 1 && inputs[1].dtype != DType{} ? inputs[1] : x);
    return {{x.dtype, x.shape}, {x.dtype, x.shape}};
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    const bool with_residual = inputs.size() > 1 && inputs[1];
    check(spec_of(x), spec_of(with_residual ? inputs[1] : x));
    const bool again = frame != nullptr && (owns_gradient_ || frame->recompute == Recompute::selective);
    const Tensor mean = make_output(ctx, frame, statistics_dtype(x.dtype()), Shape{rows(x)});
    const Tensor rstd = make_output(ctx, frame, statistics_dtype(x.dtype()), Shape{rows(x)});
    const Tensor y = again ? ctx.temporaries.allocate(x.dtype(), x.shape())
                           : make_output(ctx, frame, x.dtype(), x.shape());
    if (again)
      frame->slots().recomputable(y, *this, kY,
                                  owns_gradient_ ? RecomputeWhen::in_backward : RecomputeWhen::when_loaded);
    const bool apart = with_residual && !owns_gradient_;
    const Tensor sum = apart ? make_output(ctx, frame, x.dtype(), x.shape()) : x;
    StackScope scope(ctx.temporaries);
    LayerNormArgs args = of(ctx, x, y, mean, rstd);
    if (with_residual) {
      args.residual = inputs[1].flatten2();
      args.sum = sum.flatten2();  // over x in a block, where no other layer reads x
    }
    ctx.ops.layernorm(args, ctx.stream);
    if (frame != nullptr) {
      frame->slots().save(*this, kSum, sum);
      frame->slots().save(*this, kMean, mean);
      frame->slots().save(*this, kRstd, rstd);
    }
    return {y, sum};
  }

  // Takes {dy, dsum} and returns the gradient of the sum twice: it is the gradient of x and of the residual.
  // It is not written over dsum, because pending weight tasks may read dsum. The same pass adds the gradients
  // of weight and bias.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor sum = frame.slots().load(ctx, *this, kSum);
    const Tensor dx = frame.allocate_gradient(sum.dtype(), sum.shape());
    StackScope scope(ctx.temporaries);
    LayerNormBackwardArgs args{.dy = first_gradient(dy, *this).flatten2(),
                               .x = sum.flatten2(),
                               .weight = in_dtype(ctx, kWeight, sum.dtype()),
                               .bias = {},
                               .mean = frame.slots().load(ctx, *this, kMean),
                               .rstd = frame.slots().load(ctx, *this, kRstd),
                               .dsum = {},
                               .dx = dx.flatten2(),
                               .dweight = {},
                               .dbias = {},
                               .y = {}};
    if (dy.size() > 1 && dy[1]) args.dsum = dy[1].flatten2();
    const bool y_again = owns_gradient_ && frame.slots().needs_recompute(*this, kY);
    if (y_again) {
      args.y = args.dy;
      args.bias = in_dtype(ctx, kBias, sum.dtype());
    }
    if (wants_gradient(*parameters()[kWeight])) args.dweight = gradient_to_add(ctx, *parameters()[kWeight]);
    if (wants_gradient(*parameters()[kBias])) args.dbias = gradient_to_add(ctx, *parameters()[kBias]);
    ctx.ops.layernorm_backward(args, ctx.stream);
    if (y_again) frame.slots().set_recomputed(*this, kY, dy[0]);
    return {dx, dx};
  }

  // Running the norm on the saved sum without a residual gives the same bits, because forward takes its
  // statistics from the sum as it was stored.
  Tensor recompute(Context& ctx, Frame& frame, int) override {
    const Tensor sum = frame.slots().load(ctx, *this, kSum);
    const Tensor y = frame.allocate_gradient(sum.dtype(), sum.shape());
    StackScope scope(ctx.temporaries);
    const DType statistics = statistics_dtype(sum.dtype());
    const Tensor mean = ctx.temporaries.allocate(statistics, Shape{rows(sum)});
    const Tensor rstd = ctx.temporaries.allocate(statistics, Shape{rows(sum)});
    ctx.ops.layernorm(of(ctx, sum, y, mean, rstd), ctx.stream);
    return y;
  }

 private:
  static int64_t rows(const Tensor& x) { return x.count() / x.dim(-1); }

  LayerNormArgs of(Context& ctx, const Tensor& x, const Tensor& y, const Tensor& mean,
                   const Tensor& rstd) const {
    return {.x = x.flatten2(),
            .residual = {},
            .weight = in_dtype(ctx, kWeight, x.dtype()),
            .bias = in_dtype(ctx, kBias, x.dtype()),
            .y = y.flatten2(),
            .sum = {},
            .mean = mean,
            .rstd = rstd,
            .eps = eps_};
  }

  Tensor in_dtype(Context& ctx, size_t i, DType dtype) const {
    return as_dtype(ctx, value_of(*parameters()[i]), dtype);
  }

  void check(const Spec& x, const Spec& residual) const {
    const int64_t dim = parameters()[kWeight]->shape[0];
    if (x.shape.rank() < 1 || x.shape.back() != dim)
      fail(Code::invalid_argument, "LayerNorm ", full_name(), ": input is ", x.text(),
           ", its last dim must be ", dim);
    if (!(residual.shape == x.shape) || residual.dtype != x.dtype)
      fail(Code::invalid_argument, "LayerNorm ", full_name(), ": input is ", x.text(), " and residual is ",
           residual.text(), "; they must be alike");
  }

  const double eps_;
  const bool owns_gradient_;  // backward may write over the gradient of y
};

}  // namespace

ModulePtr make_layernorm(int64_t dim, double eps, bool owns_gradient) {
  return std::make_shared<LayerNorm>(dim, eps, owns_gradient);
}

}  // namespace gangway
