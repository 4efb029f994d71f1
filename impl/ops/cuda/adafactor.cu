#include <cmath>

#include "ops/cuda/arrays.h"
#include "ops/cuda/families.h"
#include "ops/cuda/reduce.h"

// The formulas are those of ops.h. Each order of summation depends on the shape alone.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostParts = 256;

__device__ inline double square_of(const Array& g, int64_t at, double factor) {
  const double x = read<1, double>(g, at).at[0] * factor;
  return x * x;
}

// A warp for each row.
__global__ void row_sums_kernel(Array g, double factor, double* rows, int64_t row_count, int64_t columns) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * warps + static_cast<int64_t>(threadIdx.x) / kWarpSize;
  for (int64_t row = first; row < row_count; row += static_cast<int64_t>(gridDim.x) * warps) {
    double sum = 0;
    for (int64_t c = lane; c < columns; c += kWarpSize) sum += square_of(g, row * columns + c, factor);
    sum = warp_fold(sum, Add());
    if (lane == 0) rows[row] += sum;
  }
}

// A thread for each column; rows [first, last) from `begin` on are the block's.
__global__ void column_sums_kernel(Array g, double factor, double* partials, int64_t begin, int64_t rows,
                                   int64_t columns, int64_t of_part) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = blockIdx.y * of_part, last = first + of_part < rows ? first + of_part : rows;
  if (column >= columns) return;
  double sum = 0;
  for (int64_t row = first; row < last; ++row) sum += square_of(g, (begin + row) * columns + column, factor);
  partials[blockIdx.y * columns + column] = sum;
}

struct Update {
  Array g, row, column;
  const double* totals;
  int64_t count, row_count, column_count, all_rows;
  double g_factor, least;
};

template <typename S>
__device__ inline S update_at(const Update& a, int64_t at) {
  const int64_t row = at / a.column_count, matrix = row / a.row_count;
  const S least = static_cast<S>(a.least * a.least);
  S v = static_cast<const S*>(a.row.data)[row];
  if (a.column.data != nullptr) {
    const double mean = a.totals[matrix] / static_cast<double>(a.all_rows);
    v = static_cast<S>(static_cast<double>(v) / (mean < a.least ? a.least : mean));
    v *= static_cast<const S*>(a.column.data)[matrix * a.column_count + at % a.column_count];
  }
  return read<1, S>(a.g, at).at[0] * static_cast<S>(a.g_factor) / sqrt(v < least ? least : v);
}

template <typename S>
__global__ void norm_kernel(Update a, double* partials) {
  double* const scratch = block_memory<double>();
  double sum = 0;
  for_elements<1>(a.count, [&](auto, int64_t at) {
    const double u = static_cast<double>(update_at<S>(a, at));
    sum += u * u;
  });
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

struct Step {
  Update update;
  Array p, copy;
  const double *p_squares, *squares;
  double elements, lr, step, keep, eps, threshold;
};

template <typename S>
__global__ void step_kernel(Step a) {
  const double rms_p = sqrt(*a.p_squares / a.elements), rms_u = sqrt(*a.squares / a.elements) / a.threshold;
  const double relative = 1 / sqrt(a.step) < a.lr ? 1 / sqrt(a.step) : a.lr;
  // A root mean square of NaN gives NaN.
  const double rate = (rms_p < a.eps ? a.eps : rms_p) * relative / (rms_u < 1 ? 1 : rms_u);
  for_elements<1>(a.update.count, [&](auto, int64_t at) {
    Pack<S, 1> p = read<1, S>(a.p, at);
    p.at[0] = p.at[0] * static_cast<S>(a.keep) - static_cast<S>(rate) * update_at<S>(a.update, at);
    write<1>(a.p, at, p);
    if (a.copy.data != nullptr) write<1>(a.copy, at, p);
  });
}

Update update_of(const AdafactorNormArgs& args) {
  return {array_of(args.g),       array_of(args.rows),
          array_of(args.columns), args.totals ? args.totals.data<double>() : nullptr,
          args.g.count(),         args.g.dim(1),
          args.g.dim(2),          args.row_count,
          args.g_factor,          args.least};
}

}  // namespace

void factor_sums(const FactorSumsArgs& args, Stream& stream) {
  if (args.g.count() == 0) return;
  const int64_t matrices = args.g.dim(0), rows = args.g.dim(1), columns = args.g.dim(2);
  if (args.rows)
    launch("factor_sums", row_sums_kernel,
           {blocks(pieces(matrices * rows, kThreads / kWarpSize)), kThreads, 0}, native(stream),
           array_of(args.g), args.g_factor, args.rows.data<double>(), matrices * rows, columns);
  if (!args.columns) return;
  const int64_t of_part = pieces(rows, std::min(kMostParts, pieces(rows, 16))), parts = pieces(rows, of_part);
  double* const partials =
      static_cast<double*>(workspace(stream, static_cast<size_t>(parts * columns) * sizeof(double)));
  const dim3 all(blocks(pieces(columns, kThreads)), static_cast<unsigned>(parts));
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    launch("factor_sums", column_sums_kernel, {all, kThreads, 0}, native(stream), array_of(args.g),
           args.g_factor, partials, matrix * rows, rows, columns, of_part);
    add_partials(partials, DType::f64, parts, columns, args.columns.data<double>() + matrix * columns,
                 stream);
  }
}

void adafactor_norm(const AdafactorNormArgs& args, Stream& stream) {
  const int64_t count = args.g.count();
  if (count == 0) return;
  const int64_t parts = std::min(kMostParts, pieces(count, kThreads * 8));
  double* const partials =
      static_cast<double*>(workspace(stream, static_cast<size_t>(parts) * sizeof(double)));
  const Grid grid = {blocks(parts), kThreads, kWarpSize * sizeof(double)};
  if (args.rows.dtype() == DType::f64)
    launch("adafactor_norm", norm_kernel<double>, grid, native(stream), update_of(args), partials);
  else
    launch("adafactor_norm", norm_kernel<float>, grid, native(stream), update_of(args), partials);
  add_partials(partials, DType::f64, parts, 1, args.squares.raw(), stream);
}

void adafactor(const AdafactorArgs& args, Stream& stream) {
  const int64_t count = args.p.count();
  if (count == 0) return;
  const double lr = args.control.lr * args.lr_scale;
  const Step step = {update_of(args.update),
                     array_of(args.p),
                     array_of(args.copy),
                     args.p_squares.data<double>(),
                     args.update.squares.data<double>(),
                     static_cast<double>(args.count),
                     lr,
                     static_cast<double>(args.control.step),
                     1 - lr * args.weight_decay,
                     args.eps,
                     args.threshold};
  if (args.p.dtype() == DType::f64)
    launch("adafactor", step_kernel<double>, flat_grid(count, 1), native(stream), step);
  else
    launch("adafactor", step_kernel<float>, flat_grid(count, 1), native(stream), step);
}

}  // namespace gangway::cuda
