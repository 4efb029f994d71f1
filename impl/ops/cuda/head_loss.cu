#include <array>

#include "ops/check.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/head_loss.h"
#include "ops/cuda/loss_terms.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/row_grid.h"

// T tokens, D model width, V vocabulary, C tokens of a chunk. A loss with a cap, label smoothing or a z-loss
// has kernels of their own, so that the others compute no more than they need.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 512;

template <typename S>
struct Rows {
  S* logits_CV;
  const int64_t* labels_C;
  double* losses_C;
  int64_t rows, vocabulary, ignore;
  S scale;
  RowTerms<S> terms;
};

// Each block has one row, each thread n neighbouring columns of each tile. 16-bit gradients (T) overwrite the
// front of the row of f32 logits. This is safe, because all threads read a tile before one writes, and the
// gradients of a tile lie before the logits that are still to be read.
template <typename T, bool backward, int n, bool with_terms>
__global__ void head_loss_rows_kernel(Rows<Wide<T>> p) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  const int64_t row = blockIdx.x, label = p.labels_C[row];
  const int64_t first = static_cast<int64_t>(threadIdx.x) * n, tile = static_cast<int64_t>(blockDim.x) * n;
  S* const logits_V = p.logits_CV + row * p.vocabulary;
  T* const gradient_V = reinterpret_cast<T*>(logits_V);
  const bool ignored = label == p.ignore, outside = label < 0 || label >= p.vocabulary;
  S most = -static_cast<S>(INFINITY), total = 0, sum = 0;
  if (!ignored && !outside) {
    for (int64_t j = first; j < p.vocabulary; j += tile) {
      const Pack<S, n> pack = load<n>(logits_V + j);
      for (int e = 0; e < n; ++e) {
        const S x = with_terms ? p.terms.capped(pack.at[e]) : pack.at[e];
        if (with_terms) sum += x;
        if (x > most) {
          total = total * exp(most - x) + S(1);
          most = x;
        } else {
          total += exp(x - most);
        }
      }
    }
    const S highest = block_fold(most, -static_cast<S>(INFINITY), scratch, Largest());
    __syncthreads();
    // A thread without columns has the sum 0, which must not meet exp(-infinity - highest). A NaN in the
    // logits stays, because all exponentials are NaN then.
    total = block_sum(total == S(0) ? S(0) : total * exp(most - highest), scratch);
    most = highest;
    __syncthreads();
    if (with_terms && p.terms.label_smoothing != 0) {
      sum = block_sum(sum, scratch);
      __syncthreads();
    }
  }
  const S log_total = log(total) + most;
  if (threadIdx.x == 0) {
    double logit = NAN;
    if (!ignored && !outside) logit = with_terms ? p.terms.capped(logits_V[label]) : logits_V[label];
    const double mean = static_cast<double>(sum) / static_cast<double>(p.vocabulary);
    put_loss<with_terms>(p.terms, row, ignored, logit, static_cast<double>(log_total), mean, p.losses_C);
  }
  if (!backward) return;
  const S scale = p.terms.weight(row) * p.scale;
  __syncthreads();  // the label's logit has been read
  for (int64_t begin = 0; begin < p.vocabulary; begin += tile) {
    const int64_t j = begin + first;
    Pack<T, n> gradient;
    if (j < p.vocabulary && !ignored && !outside) {
      const Pack<S, n> pack = load<n>(logits_V + j);
      for (int e = 0; e < n; ++e) {
        const bool is_label = j + e == label;
        if constexpr (with_terms) {
          const S x = p.terms.capped(pack.at[e]);
          gradient.at[e] = narrow<T>(
              p.terms.gradient(x, exp(x - most) / total, log_total, is_label, p.vocabulary) * scale);
        } else {
          gradient.at[e] = narrow<T>((exp(pack.at[e] - most) / total - (is_label ? S(1) : S(0))) * scale);
        }
      }
    } else {
      for (int e = 0; e < n; ++e) gradient.at[e] = narrow<T>(ignored ? S(0) : static_cast<S>(NAN));
    }
    if constexpr (sizeof(T) != sizeof(S)) __syncthreads();
    if (j < p.vocabulary) store<n>(gradient_V + j, gradient);
  }
}

// Sets row r of c to bias, to c[r] + bias (accumulate), or to 0. Each thread has n neighbouring columns.
template <typename T, typename B, int n>
__global__ void start_rows_kernel(T* c, const B* bias_N, int64_t rows, int64_t stride, bool accumulate,
                                  RowGrid grid) {
  using S = Wide<T>;
  for_row_packs(grid, rows, [&](int64_t row, unsigned in_row) {
    const int64_t column = static_cast<int64_t>(in_row) * n;
    T* const at = c + row * stride + column;
    Pack<T, n> pack{};
    if (accumulate) pack = load<n>(at);
    for (int e = 0; e < n; ++e) {
      const S bias = bias_N == nullptr ? S(0) : static_cast<S>(widen(bias_N[column + e]));
      pack.at[e] = narrow<T>(accumulate ? widen(pack.at[e]) + bias : bias);
    }
    store<n>(at, pack);
  });
}

// Returns the gradients of the logits. 16-bit rows lie at the front of the f32 rows of logits.
Tensor gradient_view(const Tensor& logits_CV, DType dtype) {
  if (dtype == logits_CV.dtype()) return logits_CV;
  const std::array<int64_t, 2> strides = {2 * logits_CV.dim(1), 1};
  return Tensor(logits_CV.buffer(), logits_CV.byte_offset(), dtype, logits_CV.shape(), strides);
}

template <typename T>
void rows_of(const HeadLossArgs& args, const Tensor& logits_CV, int64_t first_token, bool backward,
             Stream& stream) {
  using S = Wide<T>;
  const int64_t rows = logits_CV.dim(0);
  double* const losses_C = losses_of(rows, stream);
  const Rows<S> p = {logits_CV.data<S>(),
                     args.labels.data<int64_t>() + first_token,
                     losses_C,
                     rows,
                     args.w.dim(0),
                     args.ignore,
                     static_cast<S>(args.scale),
                     row_terms<S>(args.terms, first_token)};
  const Grid grid = {blocks(rows), kThreads, kWarpSize * sizeof(S)};
  with_packs<S>(fits_packs({address(logits_CV), p.vocabulary * sizeof(S)}), [&](auto n) {
    const auto start = [&](auto kernel) { launch("head_loss", kernel, grid, native(stream), p); };
    if (has_terms(args.terms))
      return start(backward ? head_loss_rows_kernel<T, true, n(), true>
                            : head_loss_rows_kernel<T, false, n(), true>);
    start(backward ? head_loss_rows_kernel<T, true, n(), false>
                   : head_loss_rows_kernel<T, false, n(), false>);
  });
  add_losses("head_loss", losses_C, p.labels_C, p.terms, rows, args.ignore, args.loss, args.weight, stream);
}

}  // namespace

double* losses_of(int64_t rows, Stream& stream) {
  return static_cast<double*>(workspace(stream, static_cast<size_t>(rows) * sizeof(double)));
}

// A bias has the dtype of the product's operands: that of c, or 16 bits where c is f32.
void start_rows(const Tensor& c, const Tensor& bias, bool accumulate, Stream& stream) {
  const int64_t rows = c.dim(0), columns = c.dim(1);
  with_float(c.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto start = [&](auto bias_type) {
      using B = decltype(bias_type);
      with_packs<T>(fits_packs({address(c), row_bytes(c), columns * sizeof(T)}), [&](auto n) {
        const RowGrid grid = row_grid(columns / n());
        launch("gemm", start_rows_kernel<T, B, n()>, row_launch(grid, rows), native(stream), c.data<T>(),
               bias ? bias.data<B>() : nullptr, rows, c.stride(0), accumulate, grid);
      });
    };
    if constexpr (std::is_same_v<T, float>) {
      if (bias && bias.dtype() == DType::bf16) return start(Bf16{});
      if (bias && bias.dtype() == DType::f16) return start(Half{});
    }
    start(T{});
  });
}

void head_loss(Products& products, const HeadLossArgs& args, Stack& temporaries, Stream& stream) {
  const int64_t tokens = args.x.dim(0);
  const bool backward = static_cast<bool>(args.dx) || static_cast<bool>(args.dw);
  const StackScope scope(temporaries);
  const Tensor logits = head_loss_logits(args, temporaries);
  const int64_t step = std::max<int64_t>(1, logits.dim(0));
  bool add = args.dw_accumulate;
  for (int64_t t = 0; t < tokens; t += step) {
    const int64_t rows = std::min(step, tokens - t);
    const Tensor x_CD = args.x.slice(0, t, t + rows), logits_CV = logits.slice(0, 0, rows);
    products.gemm({.a = x_CD, .b = args.w, .c = logits_CV, .bias = {}, .transpose_b = true}, stream);
    with_float(args.x.dtype(),
               [&](auto type) { rows_of<decltype(type)>(args, logits_CV, t, backward, stream); });
    const Tensor dlogits_CV = gradient_view(logits_CV, args.x.dtype());
    if (args.dx)
      products.gemm({.a = dlogits_CV, .b = args.w, .c = args.dx.slice(0, t, t + rows), .bias = {}}, stream);
    if (args.dw) {
      products.gemm(
          {.a = dlogits_CV, .b = x_CD, .c = args.dw, .bias = {}, .transpose_a = true, .accumulate = add},
          stream);
      add = true;
    }
  }
  if (args.dw && !add && args.dw.bytes() > 0)
    check(cudaMemsetAsync(args.dw.raw(), 0, args.dw.bytes(), native(stream)), "cudaMemsetAsync");
}

}  // namespace gangway::cuda
