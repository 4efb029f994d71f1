#include "ops/cuda/norm_rows.h"
#include "ops/cuda/reduce.h"

// T rows of width D. A block computes one row at a time, and each thread the same columns of each row.

namespace gangway::cuda {
namespace {

template <typename T>
struct NormForward {
  const T *x_TD, *residual_TD, *weight_D;
  T *y_TD, *sum_TD;
  Wide<T>* rstd_T;
  const Wide<T>* squares_T;  // of whole rows, of which these are parts; null: the rows are whole
  int64_t rows, width, whole_width;
  Wide<T> eps, offset;
};

// Between the two passes the row stays in shared memory, rounded to T like the stored sum. Each thread reads
// only what it wrote itself.
template <typename T, int n>
__global__ void rmsnorm_kernel(NormForward<T> p) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  T* const row = reinterpret_cast<T*>(scratch + kWarpSize);
  const int64_t step = static_cast<int64_t>(blockDim.x) * n;
  for (int64_t t = blockIdx.x; t < p.rows; t += gridDim.x) {
    S squares = 0;
    for (int64_t d = static_cast<int64_t>(threadIdx.x) * n; d < p.width; d += step) {
      Pack<T, n> x = load<n>(p.x_TD + t * p.width + d);
      if (p.residual_TD != nullptr) {
        const Pack<T, n> residual = load<n>(p.residual_TD + t * p.width + d);
        for (int i = 0; i < n; ++i) x.at[i] = narrow<T>(widen(x.at[i]) + widen(residual.at[i]));
        store<n>(p.sum_TD + t * p.width + d, x);
      }
      for (int i = 0; i < n; ++i) squares += widen(x.at[i]) * widen(x.at[i]);
      store<n>(row + d, x);
    }
    const S total = p.squares_T != nullptr ? p.squares_T[t] : block_sum(squares, scratch);
    const S rstd = S(1) / sqrt(total / static_cast<S>(p.whole_width) + p.eps);
    if (threadIdx.x == 0) p.rstd_T[t] = rstd;
    for (int64_t d = static_cast<int64_t>(threadIdx.x) * n; d < p.width; d += step) {
      const Pack<T, n> x = load<n>(row + d), weight = load<n>(p.weight_D + d);
      Pack<T, n> y;
      for (int i = 0; i < n; ++i)
        y.at[i] = narrow<T>(widen(x.at[i]) * rstd * (p.offset + widen(weight.at[i])));
      store<n>(p.y_TD + t * p.width + d, y);
    }
    __syncthreads();  // before the next row uses the scratch
  }
}

template <typename T>
struct NormBackward {
  const T *dy_TD, *x_TD, *weight_D;
  const Wide<T>* rstd_T;
  const T* dsum_TD;
  T *dx_TD, *y_TD;
  Wide<T>* partials_PD;   // null: dweight is not wanted
  const Wide<T>* dots_T;  // of whole rows, of which these are parts; null: the rows are whole
  int64_t rows, width, whole_width;
  Wide<T> offset;
  bool keeps;  // rows of dy and x fit into shared memory
};

// Block t % P computes row t, so that each block's partial sum has a fixed order. If there is room, rows of
// dy and x stay in shared memory between the two passes. No barrier is needed, because each thread reads only
// what it wrote itself.
template <typename T, int n>
__global__ void rmsnorm_backward_kernel(NormBackward<T> p) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  S* const dweight = scratch + kWarpSize;
  T* const dy_row = reinterpret_cast<T*>(dweight + (p.partials_PD != nullptr ? p.width : 0));
  T* const x_row = dy_row + p.width;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * n, step = static_cast<int64_t>(blockDim.x) * n;
  if (p.partials_PD != nullptr)
    for (int64_t d = first; d < p.width; d += step)
      for (int i = 0; i < n; ++i) dweight[d + i] = 0;
  for (int64_t t = blockIdx.x; t < p.rows; t += gridDim.x) {
    const S rstd = p.rstd_T[t];
    S along = 0;
    for (int64_t d = first; d < p.width; d += step) {
      const Pack<T, n> dy = load<n>(p.dy_TD + t * p.width + d), x = load<n>(p.x_TD + t * p.width + d);
      const Pack<T, n> weight = load<n>(p.weight_D + d);
      if (p.keeps) {
        store<n>(dy_row + d, dy);
        store<n>(x_row + d, x);
      }
      for (int i = 0; i < n; ++i) {
        const S normed = widen(x.at[i]) * rstd;
        along += widen(dy.at[i]) * (p.offset + widen(weight.at[i])) * normed;
        if (p.partials_PD != nullptr) dweight[d + i] += widen(dy.at[i]) * normed;
      }
    }
    if (p.dx_TD == nullptr) continue;
    const S sum = p.dots_T != nullptr ? p.dots_T[t] * rstd : block_sum(along, scratch);
    const S mean = sum / static_cast<S>(p.whole_width);
    for (int64_t d = first; d < p.width; d += step) {
      const Pack<T, n> dy = load<n>(p.keeps ? dy_row + d : p.dy_TD + t * p.width + d);
      const Pack<T, n> x = load<n>(p.keeps ? x_row + d : p.x_TD + t * p.width + d);
      const Pack<T, n> weight = load<n>(p.weight_D + d);
      Pack<T, n> dsum, dx, y;
      if (p.dsum_TD != nullptr) dsum = load<n>(p.dsum_TD + t * p.width + d);
      for (int i = 0; i < n; ++i) {
        const S normed = widen(x.at[i]) * rstd;
        const S factor = p.offset + widen(weight.at[i]);
        const S gradient = rstd * (widen(dy.at[i]) * factor - normed * mean);
        dx.at[i] = narrow<T>(p.dsum_TD == nullptr ? gradient : gradient + widen(dsum.at[i]));
        y.at[i] = narrow<T>(normed * factor);
      }
      store<n>(p.dx_TD + t * p.width + d, dx);
      if (p.y_TD != nullptr) store<n>(p.y_TD + t * p.width + d, y);
    }
    __syncthreads();  // before the next row uses the scratch
  }
  if (p.partials_PD == nullptr) return;
  for (int64_t d = first; d < p.width; d += step)
    for (int i = 0; i < n; ++i)
      p.partials_PD[static_cast<int64_t>(blockIdx.x) * p.width + d + i] = dweight[d + i];
}

template <typename T>
struct RowDot {
  const T *x_TD, *y_TD, *weight_D;  // weight null: its factors are 1
  Wide<T>* out_T;
  int64_t rows, width;
  Wide<T> offset;
};

template <typename T, int n>
__global__ void row_dot_kernel(RowDot<T> p) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  const int64_t step = static_cast<int64_t>(blockDim.x) * n;
  for (int64_t t = blockIdx.x; t < p.rows; t += gridDim.x) {
    S sum = 0;
    for (int64_t d = static_cast<int64_t>(threadIdx.x) * n; d < p.width; d += step) {
      const Pack<T, n> x = load<n>(p.x_TD + t * p.width + d), y = load<n>(p.y_TD + t * p.width + d);
      Pack<T, n> weight;
      if (p.weight_D != nullptr) weight = load<n>(p.weight_D + d);
      for (int i = 0; i < n; ++i) {
        const S product = widen(x.at[i]) * widen(y.at[i]);
        sum += p.weight_D == nullptr ? product : product * (p.offset + widen(weight.at[i]));
      }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) p.out_T[t] = sum;
    __syncthreads();  // before the next row uses the scratch
  }
}

}  // namespace

void rmsnorm(const RmsNormArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  if (rows == 0 || width == 0) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const NormForward<T> p = {args.x.data<T>(),
                              args.residual ? args.residual.data<T>() : nullptr,
                              args.weight.data<T>(),
                              args.y.data<T>(),
                              args.residual ? args.sum.data<T>() : nullptr,
                              args.rstd.data<S>(),
                              args.squares ? args.squares.data<S>() : nullptr,
                              rows,
                              width,
                              args.squares ? args.width : width,
                              static_cast<S>(args.eps),
                              static_cast<S>(args.offset)};
    const bool fit = fits_packs({address(args.x), address(args.residual), address(args.weight),
                                 address(args.y), args.residual ? address(args.sum) : 0, width * sizeof(T)});
    const size_t shared = kWarpSize * sizeof(S) + static_cast<size_t>(width) * sizeof(T);
    check_width("rmsnorm", width, sizeof(T), shared);
    with_packs<T>(fit, [&](auto n) {
      launch("rmsnorm", rmsnorm_kernel<T, n()>, {blocks(rows), threads_for(width, n()), shared},
             native(stream), p);
    });
  });
}

void rmsnorm_backward(const RmsNormBackwardArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  if (rows == 0 || width == 0 || (!args.dx && !args.dweight)) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const int64_t partials = args.dweight ? std::min(rows, kMostPartials) : 0;
    const size_t sums = (kWarpSize + static_cast<size_t>(args.dweight ? width : 0)) * sizeof(S);
    check_width("rmsnorm_backward", width, sizeof(S), sums);
    const size_t kept = 2 * static_cast<size_t>(width) * sizeof(T);
    const bool keeps = args.dx && sums + kept <= shared_memory_of_block();
    S* const partials_PD =
        args.dweight ? static_cast<S*>(workspace(stream, static_cast<size_t>(partials * width) * sizeof(S)))
                     : nullptr;
    const NormBackward<T> p = {args.dy.data<T>(),
                               args.x.data<T>(),
                               args.weight.data<T>(),
                               args.rstd.data<S>(),
                               args.dsum ? args.dsum.data<T>() : nullptr,
                               args.dx ? args.dx.data<T>() : nullptr,
                               args.y ? args.y.data<T>() : nullptr,
                               partials_PD,
                               args.dots ? args.dots.data<S>() : nullptr,
                               rows,
                               width,
                               args.dots ? args.width : width,
                               static_cast<S>(args.offset),
                               keeps};
    const bool fit = fits_packs({address(args.dy), address(args.x), address(args.weight), address(args.dsum),
                                 address(args.dx), address(args.y), width * sizeof(T)});
    const size_t shared = sums + (keeps ? kept : 0);
    with_packs<T>(fit, [&](auto n) {
      launch("rmsnorm_backward", rmsnorm_backward_kernel<T, n()>,
             {blocks(args.dweight ? partials : rows), threads_for(width, n()), shared}, native(stream), p);
    });
    if (args.dweight)
      add_partials(partials_PD, args.dweight.dtype(), partials, width, args.dweight.raw(), stream);
  });
}

void row_dot(const RowDotArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  if (rows == 0) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const RowDot<T> p = {args.x.data<T>(),
                         args.y.data<T>(),
                         args.weight ? args.weight.data<T>() : nullptr,
                         args.out.data<S>(),
                         rows,
                         width,
                         static_cast<S>(args.offset)};
    const bool fit = fits_packs({address(args.x), address(args.y), address(args.weight), width * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      launch("row_dot", row_dot_kernel<T, n()>,
             {blocks(rows), threads_for(width, n()), kWarpSize * sizeof(S)}, native(stream), p);
    });
  });
}

}  // namespace gangway::cuda
