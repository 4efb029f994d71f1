#include "ops/cpu/head_loss.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ops/check.h"
#include "ops/cpu/elementwise.h"
#include "ops/cpu/kernels/head_loss_kernels.h"
#include "ops/cpu/operations.h"

// T: tokens. D: model width. V: vocabulary. C: tokens of a chunk.

namespace gangway::cpu {
namespace {

constexpr int64_t kMostRows = 512;  // in a chunk

const HeadLossKernels& kernels(Isa isa) {
  return choose(isa, portable::head_loss_kernels, avx2::head_loss_kernels, avx512::head_loss_kernels);
}

void zero(Context& context, const Tensor& t) {
  if (t.bytes() > 0) context.device.zero(t.raw(), t.bytes(), context.device.stream());
}

struct Chunk {
  Tensor x_CD, logits_CV;
  const int64_t* labels_C;
  int64_t first, rows;  // `first` is the chunk's first token
};

// The weight of token t.
double weight_of(const HeadLossArgs& args, int64_t t) {
  return args.terms.weights ? real_at(args.terms.weights, t) : 1;
}
void write_log_prob(const HeadLossArgs& args, int64_t t, double value) {
  if (args.terms.log_probs) set_real(args.terms.log_probs, t, value);
}

// Computes the chunk's losses, 0 for ignored labels, and replaces the logits by their gradients.
void rows_of(Context& context, const HeadLossArgs& args, const Chunk& chunk, LossGradient gradient,
             double* losses_C) {
  const int64_t vocabulary = args.w.dim(0);
  const HeadLossKernels& k = kernels(context.isa);
  const bool f64 = chunk.logits_CV.dtype() == DType::f64;
  const int64_t bytes = vocabulary * (f64 ? 8 : 4);
  context.pool.run(static_cast<size_t>(chunk.rows), 4, [&](int, size_t first, size_t last) {
    for (size_t r = first; r < last; ++r) {
      char* row = chunk.logits_CV.data<char>() + static_cast<int64_t>(r) * bytes;
      const int64_t label = chunk.labels_C[r], t = chunk.first + static_cast<int64_t>(r);
      RowLoss loss{0, 0};
      if (label == args.ignore) {
        std::fill_n(row, bytes, 0);
      } else if (label < 0 || label >= vocabulary) {
        loss = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
        std::fill_n(row, bytes, static_cast<char>(0xff));  // a NaN in every floating dtype
      } else {
        const RowTerms terms{args.scale, weight_of(args, t), args.terms.cap, args.terms.label_smoothing,
                             args.terms.z_loss};
        loss = f64 ? k.row_f64(reinterpret_cast<double*>(row), vocabulary, label, terms, gradient)
                   : k.row_f32(reinterpret_cast<float*>(row), vocabulary, label, terms, gradient);
      }
      losses_C[r] = loss.loss;
      write_log_prob(args, t, loss.log_prob);
    }
  });
}

// Adds the losses and the weights of one chunk, in the order of t.
void add_losses(const HeadLossArgs& args, const Chunk& chunk, const double* losses_C) {
  double loss = args.loss ? *args.loss.data<double>() : 0,
         weight = args.weight ? *args.weight.data<double>() : 0;
  for (int64_t r = 0; r < chunk.rows; ++r) {
    loss += losses_C[r];
    if (chunk.labels_C[r] != args.ignore) weight += weight_of(args, chunk.first + r);
  }
  if (args.loss) *args.loss.data<double>() = loss;
  if (args.weight) *args.weight.data<double>() = weight;
}

// Returns the gradient as an operand of the products. Rows of bf16 lie at the front of the f32 rows' memory.
Tensor gradient_view(const Tensor& logits_CV, LossGradient gradient) {
  if (gradient != LossGradient::bf16) return logits_CV;
  const std::array<int64_t, 2> strides = {2 * logits_CV.dim(1), 1};
  return Tensor(logits_CV.buffer(), logits_CV.byte_offset(), DType::bf16, logits_CV.shape(), strides);
}

}  // namespace

void head_loss(Context& context, const HeadLossArgs& args, Stack& temporaries) {
  const int64_t tokens = args.x.dim(0);
  const bool backward = static_cast<bool>(args.dx) || static_cast<bool>(args.dw);
  // bf16 gradients are made only where a kernel multiplies bf16 directly. Elsewhere the panels take f32
  // gradients, which are not rounded.
  const LossGradient gradient = !backward ? LossGradient::none
                                : args.x.dtype() == DType::bf16 && context.isa == Isa::avx512
                                    ? LossGradient::bf16
                                    : LossGradient::same;
  const StackScope scope(temporaries);
  const Tensor logits = head_loss_logits(args, temporaries);
  const int64_t step = std::max<int64_t>(1, logits.dim(0));
  GW_CHECK(step, <=, kMostRows);
  bool add = args.dw_accumulate;
  std::array<double, kMostRows> losses;
  for (int64_t t = 0; t < tokens; t += step) {
    const int64_t rows = std::min(step, tokens - t);
    const int64_t* labels = args.labels.data<int64_t>() + t;
    const Tensor dx_CD = args.dx ? args.dx.slice(0, t, t + rows) : Tensor();
    if (std::all_of(labels, labels + rows, [&](int64_t l) { return l == args.ignore; })) {
      if (dx_CD) zero(context, dx_CD);
      for (int64_t r = 0; r < rows; ++r) write_log_prob(args, t + r, 0);
      continue;
    }
    const Chunk chunk{args.x.slice(0, t, t + rows), logits.slice(0, 0, rows), labels, t, rows};
    gemm(context, {.a = chunk.x_CD, .b = args.w, .c = chunk.logits_CV, .bias = {}, .transpose_b = true});
    rows_of(context, args, chunk, gradient, losses.data());
    add_losses(args, chunk, losses.data());
    const Tensor dlogits_CV = gradient_view(chunk.logits_CV, gradient);
    if (dx_CD) gemm(context, {.a = dlogits_CV, .b = args.w, .c = dx_CD, .bias = {}});
    if (args.dw) {
      gemm(context, {.a = dlogits_CV,
                     .b = chunk.x_CD,
                     .c = args.dw,
                     .bias = {},
                     .transpose_a = true,
                     .accumulate = add});
      add = true;
    }
  }
  if (args.dw && !add) zero(context, args.dw);
}

}  // namespace gangway::cpu
