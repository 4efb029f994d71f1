#include "nn/fp8.h"

#include <algorithm>

#include "device/gpu_plans.h"
#include "nn/gradient.h"
#include "nn/linear_choice.h"
#include "ops/fp8.h"

namespace gangway {
namespace {

constexpr int kMostHistory = 4096;
// A scale times this factor stays infinite if it was, and else becomes smaller than each magnitude from which
// the scale follows; the least scale becomes 0.
constexpr double kOnlyInfinity = 0x1p-126;
constexpr int64_t kGpuMultiple = 16;  // of the sizes of a product that cuBLASLt computes
constexpr size_t kGpuAlignment = 16;  // of the scales of rows that cuBLASLt reads, in bytes

void check(const Fp8Options& o) {
  const auto scaling = static_cast<int32_t>(o.scaling);
  if (scaling < 0 || scaling > static_cast<int32_t>(Fp8Scaling::row))
    fail(Code::invalid_argument, "fp8: scaling ", scaling, " is unknown (0 to 2)");
  if (o.history < 1 || o.history > kMostHistory)
    fail(Code::invalid_argument, "fp8: history is ", o.history, ", outside [1, ", kMostHistory, "]");
}

// The scales of some rows of a larger operand may begin anywhere.
Tensor aligned(Context& ctx, const Tensor& scale) {
  if (scale.byte_offset() % kGpuAlignment == 0) return scale;
  const Tensor copy = ctx.temporaries.allocate(scale.dtype(), scale.shape());
  ctx.ops.cast(scale, copy, ctx.stream);
  return copy;
}

}  // namespace

Fp8Products::Fp8Products(const Fp8Options& options)
    : scaling_(options.scaling), entries_(options.history + 1) {
  for (auto& history : histories_) history = std::make_shared<History>();
}

Fp8Products::Operand Fp8Products::Operand::rows(int64_t first, int64_t last) const {
  return {codes.slice(0, first, last), scale.count() == 1 ? scale : scale.slice(0, first, last)};
}

// The forward sums over the inputs, so that a split of them cuts its rows.
Fp8Products::Operand Fp8Products::input(Context& ctx, const Tensor& x_TI) {
  return quantized(ctx, kInput, x_TI, false, Dim::in);
}
Fp8Products::Operand Fp8Products::weight(Context& ctx, const Tensor& w_OI) {
  return quantized(ctx, kWeight, w_OI, false, Dim::in);
}

void Fp8Products::forward(Context& ctx, const Operand& x, const Operand& w, const Tensor& y_TO) const {
  multiply(ctx, x, w, y_TO, false);
}

void Fp8Products::input_gradient(Context& ctx, const Tensor& dy_TO, const Tensor& w_OI, const Tensor& dx_TI,
                                 bool accumulate) {
  const StackScope scope(ctx.temporaries);
  const Operand dy = quantized(ctx, kGradient, dy_TO, false, Dim::out);
  multiply(ctx, dy, quantized(ctx, kWeight, w_OI, true, Dim::out), dx_TI, accumulate);
}

// Every rank of tp has all of its tokens, so that no sum is split.
void Fp8Products::weight_gradient(Context& ctx, const Tensor& dy_TO, const Tensor& x_TI, const Tensor& dw_OI,
                                  bool accumulate) {
  const StackScope scope(ctx.temporaries);
  weight_gradient(ctx, dy_TO, quantized(ctx, kInput, x_TI, true, Dim::none), dw_OI, accumulate);
}

void Fp8Products::weight_gradient(Context& ctx, const Tensor& dy_TO, const Operand& x_IT, const Tensor& dw_OI,
                                  bool accumulate) {
  const StackScope scope(ctx.temporaries);
  multiply(ctx, quantized(ctx, kGradient, dy_TO, true, Dim::none), x_IT, dw_OI, accumulate);
}

void Fp8Products::input_part(Context& ctx, const Tensor& x_TI, Fp8ScaleJoin& join, const Operand& made) {
  const Fp8Scale of = has_scales_of_rows() ? Fp8Scale::row : Fp8Scale::tensor;
  if (scaling_ == Fp8Scaling::delayed) {
    write_delayed_scale(ctx, x_TI, join, made.scale);
  } else {
    fp8_ops(ctx.ops).fp8_scale({.x = x_TI, .scale = made.scale, .of = of}, ctx.stream);
    if (scaling_ == Fp8Scaling::tensor) join.join(ctx, made.scale);
  }
  fp8_ops(ctx.ops).fp8_codes({.x = x_TI, .scale = made.scale, .of = of, .codes = made.codes}, ctx.stream);
}

void Fp8Products::transposed_part(Context& ctx, const Tensor& x_TI, Fp8ScaleJoin& join,
                                  const Operand& made) const {
  const Fp8Scale of = has_scales_of_rows() ? Fp8Scale::column : Fp8Scale::tensor;
  if (has_scales_of_rows()) {
    fp8_ops(ctx.ops).fp8_scale({.x = x_TI, .scale = made.scale, .of = of}, ctx.stream);
    join.join(ctx, made.scale);
  }
  fp8_ops(ctx.ops).fp8_codes({.x = x_TI, .scale = made.scale, .of = of, .transposed = made.codes},
                             ctx.stream);
}

// The history takes the magnitude of the whole input, and a scale is not exact enough to tell it. So the
// operation records that of this rank's part in a history of one entry, from which the ranks join it. It
// records no infinity, but gives an infinite scale, which is joined beside it.
void Fp8Products::write_delayed_scale(Context& ctx, const Tensor& x, Fp8ScaleJoin& join,
                                      const Tensor& scale) {
  const StackScope scope(ctx.temporaries);
  const Tensor both = ctx.temporaries.allocate(DType::f32, {2});
  const Tensor most = both.slice(0, 0, 1), own_scale = both.slice(0, 1, 2);
  ctx.ops.fill(both, 0, ctx.stream);
  fp8_ops(ctx.ops).fp8_scale({.x = x, .scale = own_scale, .history = most, .now = 0, .record = true},
                             ctx.stream);
  join.join(ctx, both);
  ctx.ops.scale(own_scale, kOnlyInfinity, ctx.stream);
  Fp8ScaleArgs whole{.x = both.reshape({1, 2}), .scale = scale};
  delay(ctx, kInput, whole);
  fp8_ops(ctx.ops).fp8_scale(whole, ctx.stream);
}

void Fp8Products::check_device(Ops& ops) const { fp8_ops(ops).check_fp8(scaling_ == Fp8Scaling::row); }

void Fp8Products::check_products(Ops& ops, const std::string& layer, DType dtype, int64_t in, int64_t out,
                                 int64_t tokens) const {
  check_device(ops);
  if (!is_or_plans_for_gpu(ops.device())) return;
  if (dtype == DType::f64)
    fail(Code::not_supported, "Linear ", layer,
         " computes in FP8, which a GPU adds up in f32 or less, and the "
         "model in f64; take f32, bf16 or f16");
  if (in % kGpuMultiple == 0 && out % kGpuMultiple == 0 && (tokens < 0 || tokens % kGpuMultiple == 0)) return;
  fail(Code::invalid_argument, "Linear ", layer, " computes in FP8 with in ", in, " and out ", out,
       tokens < 0 ? std::string() : text(" for ", tokens, " tokens"), " on this rank; on a GPU each is a ",
       "multiple of ", kGpuMultiple, "; leave the layer out of the patterns, or change the sizes");
}

void Fp8Products::add_options(CallSignature& signature) const {
  signature.add("fp8 scaling", scaling_);
  signature.add("fp8 history", entries_ - 1);
}

Values Fp8Products::tables() const {
  Values all;
  for (const auto& history : histories_)
    if (history->most) all.push_back(history->most);
  return all;
}

// Begins a new entry with each step. A factor of 0 clears it, because an entry is finite. A fill would join
// the operations before it, and since the entry is another one in each step, a GPU would make a CUDA graph of
// them for each entry.
void Fp8Products::record(Context& ctx, History& history) const {
  if (!history.most) {
    history.most = Tensor::allocate(ctx.ops.device().allocator(), DType::f32, {entries_});
    ctx.ops.fill(history.most, 0, ctx.stream);
  } else if (history.step != ctx.step) {
    history.now = (history.now + 1) % entries_;
    ctx.ops.scale(history.most.slice(0, history.now, history.now + 1), 0, ctx.stream);
  }
  history.step = ctx.step;
}

void Fp8Products::delay(Context& ctx, Which which, Fp8ScaleArgs& scale) {
  if (scaling_ != Fp8Scaling::delayed) return;
  History& history = *histories_[which];
  if (ctx.training) record(ctx, history);
  scale.history = history.most;
  scale.now = history.now;
  scale.record = ctx.training;
}

// `summed` is the dim of the weight over which the product sums, if it is one of them.
Fp8Products::Operand Fp8Products::quantized(Context& ctx, Which which, const Tensor& x, bool transposed,
                                            Dim summed) {
  const bool rows = scaling_ == Fp8Scaling::row;
  const Fp8Scale of = !rows ? Fp8Scale::tensor : transposed ? Fp8Scale::column : Fp8Scale::row;
  const DType dtype = which == kGradient && !rows ? DType::f8_e5m2 : DType::f8_e4m3;
  const Shape shape = transposed ? Shape{x.dim(1), x.dim(0)} : Shape{x.dim(0), x.dim(1)};
  const Operand made = {ctx.temporaries.allocate(dtype, shape),
                        ctx.temporaries.allocate(DType::f32, {rows ? shape[0] : 1})};
  Fp8ScaleArgs scale{.x = x, .scale = made.scale, .codes = dtype, .of = of};
  delay(ctx, which, scale);
  fp8_ops(ctx.ops).fp8_scale(scale, ctx.stream);
  if (rows && split_.join != nullptr && split_.dim == summed && shape[0] > 0)
    split_.join->join(ctx, made.scale);
  fp8_ops(ctx.ops).fp8_codes({.x = x,
                              .scale = made.scale,
                              .of = of,
                              .codes = transposed ? Tensor() : made.codes,
                              .transposed = transposed ? made.codes : Tensor()},
                             ctx.stream);
  return made;
}

void Fp8Products::multiply(Context& ctx, const Operand& a, const Operand& b, const Tensor& c,
                           bool accumulate) const {
  Fp8GemmArgs args{
      .a = a.codes, .b = b.codes, .a_scale = a.scale, .b_scale = b.scale, .c = c, .accumulate = accumulate};
  const StackScope scope(ctx.temporaries);
  if (is_or_plans_for_gpu(ctx.ops.device())) {
    args.a_scale = aligned(ctx, a.scale);
    args.b_scale = aligned(ctx, b.scale);
  } else {
    args.a_values = ctx.temporaries.allocate(statistics_dtype(c.dtype()), a.codes.shape());
    args.b_values = ctx.temporaries.allocate(statistics_dtype(c.dtype()), b.codes.shape());
  }
  fp8_ops(ctx.ops).fp8_gemm(args, ctx.stream);
}

void apply_fp8(const ModulePtr& root, const Fp8Options& options) {
  check(options);
  const std::map<std::string, Linear*> chosen =
      chosen_linears(root, options.patterns, {"fp8", "computes in FP8", "compute in FP8"});
  for (const auto& [path, linear] : chosen)
    if (linear->fp8() != nullptr)
      fail(Code::invalid_state, "fp8: ", path, " computes in FP8 already; give it to one call");
  for (const auto& [path, linear] : chosen) linear->set_fp8(std::make_shared<Fp8Products>(options));
}

}  // namespace gangway
