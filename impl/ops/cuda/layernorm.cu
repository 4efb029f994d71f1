#include "ops/cuda/norm_rows.h"
#include "ops/cuda/reduce.h"

// T rows of width D. As in norm.cu, a block computes one row at a time, and each thread the same columns of
// each row, so that it reads from shared memory only what it wrote itself.

namespace gangway::cuda {
namespace {

template <typename T>
struct NormForward {
  const T *x_TD, *residual_TD, *weight_D, *bias_D;
  T *y_TD, *sum_TD;
  Wide<T>*mean_T, *rstd_T;
  int64_t rows, width;
  Wide<T> eps;
};

// Between its passes the row stays in shared memory, rounded to T like the stored sum.
template <typename T, int n>
__global__ void layernorm_kernel(NormForward<T> p) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  T* const row = reinterpret_cast<T*>(scratch + 2 * kWarpSize);
  const int64_t first = static_cast<int64_t>(threadIdx.x) * n, step = static_cast<int64_t>(blockDim.x) * n;
  for (int64_t t = blockIdx.x; t < p.rows; t += gridDim.x) {
    S total = 0;
    for (int64_t d = first; d < p.width; d += step) {
      Pack<T, n> x = load<n>(p.x_TD + t * p.width + d);
      if (p.residual_TD != nullptr) {
        const Pack<T, n> residual = load<n>(p.residual_TD + t * p.width + d);
        for (int i = 0; i < n; ++i) x.at[i] = narrow<T>(widen(x.at[i]) + widen(residual.at[i]));
        store<n>(p.sum_TD + t * p.width + d, x);
      }
      for (int i = 0; i < n; ++i) total += widen(x.at[i]);
      store<n>(row + d, x);
    }
    const S mean = block_sum(total, scratch) / static_cast<S>(p.width);
    S squares = 0;
    for (int64_t d = first; d < p.width; d += step) {
      const Pack<T, n> x = load<n>(row + d);
      for (int i = 0; i < n; ++i) squares += (widen(x.at[i]) - mean) * (widen(x.at[i]) - mean);
    }
    const S variance = block_sum(squares, scratch + kWarpSize) / static_cast<S>(p.width);
    const S rstd = S(1) / sqrt(variance + p.eps);
    if (threadIdx.x == 0) {
      p.mean_T[t] = mean;
      p.rstd_T[t] = rstd;
    }
    for (int64_t d = first; d < p.width; d += step) {
      const Pack<T, n> x = load<n>(row + d), weight = load<n>(p.weight_D + d), bias = load<n>(p.bias_D + d);
      Pack<T, n> y;
      for (int i = 0; i < n; ++i) {
        const S normed = (widen(x.at[i]) - mean) * rstd;
        y.at[i] = narrow<T>(normed * widen(weight.at[i]) + widen(bias.at[i]));
      }
      store<n>(p.y_TD + t * p.width + d, y);
    }
    __syncthreads();  // before the next row uses the scratch
  }
}

template <typename T>
struct NormBackward {
  const T *dy_TD, *x_TD, *weight_D, *bias_D;
  const Wide<T>*mean_T, *rstd_T;
  const T* dsum_TD;
  T *dx_TD, *y_TD;
  Wide<T>*dweight_PD, *dbias_PD;  // partial sums; null: neither gradient is wanted
  int64_t rows, width;
  bool keeps;  // rows of dy and x fit into shared memory
};

// Block t % P computes row t, so that each block's partial sums have a fixed order.
template <typename T, int n>
__global__ void layernorm_backward_kernel(NormBackward<T> p) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  S *const dweight = scratch + 2 * kWarpSize, *const dbias = dweight + p.width;
  const bool sums = p.dweight_PD != nullptr;
  T* const dy_row = reinterpret_cast<T*>(dweight + (sums ? 2 * p.width : 0));
  T* const x_row = dy_row + p.width;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * n, step = static_cast<int64_t>(blockDim.x) * n;
  if (sums)
    for (int64_t d = first; d < p.width; d += step)
      for (int i = 0; i < n; ++i) dweight[d + i] = dbias[d + i] = 0;
  for (int64_t t = blockIdx.x; t < p.rows; t += gridDim.x) {
    const S mean = p.mean_T[t], rstd = p.rstd_T[t];
    S total = 0, along = 0;
    for (int64_t d = first; d < p.width; d += step) {
      const Pack<T, n> dy = load<n>(p.dy_TD + t * p.width + d), x = load<n>(p.x_TD + t * p.width + d);
      const Pack<T, n> weight = load<n>(p.weight_D + d);
      if (p.keeps) {
        store<n>(dy_row + d, dy);
        store<n>(x_row + d, x);
      }
      for (int i = 0; i < n; ++i) {
        const S normed = (widen(x.at[i]) - mean) * rstd, g = widen(dy.at[i]) * widen(weight.at[i]);
        total += g;
        along += g * normed;
        if (sums) {
          dweight[d + i] += widen(dy.at[i]) * normed;
          dbias[d + i] += widen(dy.at[i]);
        }
      }
    }
    if (p.dx_TD == nullptr) continue;
    const S mean_g = block_sum(total, scratch) / static_cast<S>(p.width);
    const S mean_along = block_sum(along, scratch + kWarpSize) / static_cast<S>(p.width);
    for (int64_t d = first; d < p.width; d += step) {
      const Pack<T, n> dy = load<n>(p.keeps ? dy_row + d : p.dy_TD + t * p.width + d);
      const Pack<T, n> x = load<n>(p.keeps ? x_row + d : p.x_TD + t * p.width + d);
      const Pack<T, n> weight = load<n>(p.weight_D + d);
      Pack<T, n> dsum, bias, dx, y;
      if (p.dsum_TD != nullptr) dsum = load<n>(p.dsum_TD + t * p.width + d);
      if (p.y_TD != nullptr) bias = load<n>(p.bias_D + d);
      for (int i = 0; i < n; ++i) {
        const S normed = (widen(x.at[i]) - mean) * rstd, g = widen(dy.at[i]) * widen(weight.at[i]);
        const S gradient = rstd * (g - mean_g - normed * mean_along);
        dx.at[i] = narrow<T>(p.dsum_TD == nullptr ? gradient : gradient + widen(dsum.at[i]));
        if (p.y_TD != nullptr) y.at[i] = narrow<T>(normed * widen(weight.at[i]) + widen(bias.at[i]));
      }
      store<n>(p.dx_TD + t * p.width + d, dx);
      if (p.y_TD != nullptr) store<n>(p.y_TD + t * p.width + d, y);
    }
    __syncthreads();  // before the next row uses the scratch
  }
  if (!sums) return;
  for (int64_t d = first; d < p.width; d += step)
    for (int i = 0; i < n; ++i) {
      const int64_t at = static_cast<int64_t>(blockIdx.x) * p.width + d + i;
      p.dweight_PD[at] = dweight[d + i];
      p.dbias_PD[at] = dbias[d + i];
    }
}

}  // namespace

void layernorm(const LayerNormArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  if (rows == 0 || width == 0) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const NormForward<T> p = {args.x.data<T>(),
                              args.residual ? args.residual.data<T>() : nullptr,
                              args.weight.data<T>(),
                              args.bias.data<T>(),
                              args.y.data<T>(),
                              args.residual ? args.sum.data<T>() : nullptr,
                              args.mean.data<S>(),
                              args.rstd.data<S>(),
                              rows,
                              width,
                              static_cast<S>(args.eps)};
    const bool fit =
        fits_packs({address(args.x), address(args.residual), address(args.weight), address(args.bias),
                    address(args.y), args.residual ? address(args.sum) : 0, width * sizeof(T)});
    const size_t shared = 2 * kWarpSize * sizeof(S) + static_cast<size_t>(width) * sizeof(T);
    check_width("layernorm", width, sizeof(T), shared);
    with_packs<T>(fit, [&](auto n) {
      launch("layernorm", layernorm_kernel<T, n()>, {blocks(rows), threads_for(width, n()), shared},
             native(stream), p);
    });
  });
}

void layernorm_backward(const LayerNormBackwardArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  const bool wants_sums = args.dweight || args.dbias;
  if (rows == 0 || width == 0 || (!args.dx && !wants_sums)) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const int64_t partials = wants_sums ? std::min(rows, kMostPartials) : 0;
    const size_t sums = (2 * kWarpSize + static_cast<size_t>(wants_sums ? 2 * width : 0)) * sizeof(S);
    check_width("layernorm_backward", width, sizeof(S), sums);
    const size_t kept = 2 * static_cast<size_t>(width) * sizeof(T);
    const bool keeps = args.dx && sums + kept <= shared_memory_of_block();
    S* const dweight_PD =
        wants_sums ? static_cast<S*>(workspace(stream, static_cast<size_t>(2 * partials * width) * sizeof(S)))
                   : nullptr;
    S* const dbias_PD = wants_sums ? dweight_PD + partials * width : nullptr;
    const NormBackward<T> p = {args.dy.data<T>(),
                               args.x.data<T>(),
                               args.weight.data<T>(),
                               args.y ? args.bias.data<T>() : nullptr,
                               args.mean.data<S>(),
                               args.rstd.data<S>(),
                               args.dsum ? args.dsum.data<T>() : nullptr,
                               args.dx ? args.dx.data<T>() : nullptr,
                               args.y ? args.y.data<T>() : nullptr,
                               dweight_PD,
                               dbias_PD,
                               rows,
                               width,
                               keeps};
    const bool fit =
        fits_packs({address(args.dy), address(args.x), address(args.weight), args.y ? address(args.bias) : 0,
                    address(args.dsum), address(args.dx), address(args.y), width * sizeof(T)});
    const size_t shared = sums + (keeps ? kept : 0);
    with_packs<T>(fit, [&](auto n) {
      launch("layernorm_backward", layernorm_backward_kernel<T, n()>,
             {blocks(wants_sums ? partials : rows), threads_for(width, n()), shared}, native(stream), p);
    });
    const auto add = [&](const S* partials_PD, const Tensor& to) {
      if (to) add_partials(partials_PD, to.dtype(), partials, width, to.raw(), stream);
    };
    add(dweight_PD, args.dweight);
    add(dbias_PD, args.dbias);
  });
}

}  // namespace gangway::cuda
