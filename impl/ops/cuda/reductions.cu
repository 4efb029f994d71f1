#include <limits>

#include "ops/cuda/arrays.h"
#include "ops/cuda/families.h"
#include "ops/cuda/reduce.h"

// Sums over whole tensors. Each block sums up its own part, and then one kernel sums up the parts in order.
// The order depends only on the shape and on whether accesses of 16 bytes are possible.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostParts = 256;

// Each thread has n neighbouring columns of the rows [first, last) of its block.
template <typename T, int n>
__global__ void column_sum_kernel(const T* x_TD, Wide<T>* partials_PD, int64_t rows, int64_t columns,
                                  int64_t of_part) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  const int64_t first = blockIdx.y * of_part, last = first + of_part < rows ? first + of_part : rows;
  if (column >= columns) return;
  Pack<Wide<T>, n> sum{};
  for (int64_t t = first; t < last; ++t) {
    const Pack<T, n> x = load<n>(x_TD + t * columns + column);
    for (int e = 0; e < n; ++e) sum.at[e] += widen(x.at[e]);
  }
  store<n>(partials_PD + blockIdx.y * columns + column, sum);
}

template <typename S>
__global__ void add_partials_kernel(const S* partials_PD, int64_t parts, int64_t columns, S* y_D) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  S sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += partials_PD[p * columns + column];
  y_D[column] += sum;
}

enum class Power : int { one, two, any, infinity };

__device__ inline double power_of(double x, Power power, double p) {
  const double size = fabs(x);
  switch (power) {
    case Power::two: return size * size;
    case Power::any: return pow(size, p);
    default: return size;
  }
}
__device__ inline double fold_power(double value, Power power, double* scratch) {
  return power == Power::infinity ? block_fold(value, 0.0, scratch, Largest()) : block_sum(value, scratch);
}

// The mapping of elements to threads depends only on the count and on whether accesses of 16 bytes are
// possible.
template <typename T, int n>
__global__ void norm_power_kernel(const T* x, int64_t count, Power power, double p, double* partials) {
  double* const scratch = block_memory<double>();
  double sum = 0;
  for_elements<n>(count, [&](auto m, int64_t at) {
    const Pack<T, m()> pack = load<m()>(x + at);
    for (int e = 0; e < m(); ++e) {
      const double value = power_of(static_cast<double>(widen(pack.at[e])), power, p);
      sum = power == Power::infinity ? Largest()(sum, value) : sum + value;
    }
  });
  sum = fold_power(sum, power, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}
__global__ void add_norm_power_kernel(const double* partials, int64_t parts, Power power, double* out) {
  double* const scratch = block_memory<double>();
  const double mine = static_cast<int64_t>(threadIdx.x) < parts ? partials[threadIdx.x] : 0.0;
  const double sum = fold_power(mine, power, scratch);
  if (threadIdx.x == 0) *out = power == Power::infinity ? Largest()(*out, sum) : *out + sum;
}

struct Lower {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};

// One block is enough, because ids are few.
__global__ void id_range_kernel(const int64_t* ids, int64_t count, int64_t ignore, int64_t* out) {
  int64_t* const scratch = block_memory<int64_t>();
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t lowest = kNone, highest = -kNone, found = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (ids[i] == ignore) continue;
    lowest = Lower()(lowest, ids[i]);
    highest = Largest()(highest, ids[i]);
    ++found;
  }
  lowest = block_fold(lowest, kNone, scratch, Lower());
  __syncthreads();
  highest = block_fold(highest, -kNone, scratch, Largest());
  __syncthreads();
  found = block_sum(found, scratch);
  if (threadIdx.x != 0) return;
  out[0] = found == 0 ? 0 : lowest;
  out[1] = found == 0 ? -1 : highest;
  out[2] = found;
}

}  // namespace

void add_partials(const void* partials, DType dtype, int64_t rows, int64_t columns, void* y, Stream& stream) {
  const Grid grid = {blocks(pieces(columns, kThreads)), kThreads, 0};
  if (dtype == DType::f64)
    return launch("add_partials", add_partials_kernel<double>, grid, native(stream),
                  static_cast<const double*>(partials), rows, columns, static_cast<double*>(y));
  launch("add_partials", add_partials_kernel<float>, grid, native(stream),
         static_cast<const float*>(partials), rows, columns, static_cast<float*>(y));
}

void column_sum(const Tensor& x, const Tensor& y, Stream& stream) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  if (rows == 0 || columns == 0) return;
  const int64_t of_part = pieces(rows, std::min(kMostParts, pieces(rows, 16))), parts = pieces(rows, of_part);
  with_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    S* const partials_PD =
        static_cast<S*>(workspace(stream, static_cast<size_t>(parts * columns) * sizeof(S)));
    with_packs<T>(fits_packs({address(x), columns * sizeof(T)}), [&](auto n) {
      const dim3 all(blocks(pieces(columns / n(), kThreads)), static_cast<unsigned>(parts));
      launch("column_sum", column_sum_kernel<T, n()>, {all, kThreads, 0}, native(stream), x.data<T>(),
             partials_PD, rows, columns, of_part);
    });
    add_partials(partials_PD, y.dtype(), parts, columns, y.raw(), stream);
  });
}

void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) {
  const int64_t count = x.count();
  if (count == 0) return;
  const Power power = p == 1 ? Power::one : p == 2 ? Power::two : p > 1e300 ? Power::infinity : Power::any;
  const int64_t parts = std::min(kMostParts, pieces(count, kThreads * 8));
  double* const partials =
      static_cast<double*>(workspace(stream, static_cast<size_t>(parts) * sizeof(double)));
  const size_t shared = kWarpSize * sizeof(double);
  with_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    with_packs<T>(fits_packs({address(x)}), [&](auto n) {
      launch("norm_power", norm_power_kernel<T, n()>, {blocks(parts), kThreads, shared}, native(stream),
             x.data<T>(), count, power, p, partials);
    });
  });
  launch("norm_power", add_norm_power_kernel, {dim3(1), static_cast<int>(kMostParts), shared}, native(stream),
         partials, parts, power, out.data<double>());
}

void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) {
  launch("id_range", id_range_kernel, {dim3(1), 1024, kWarpSize * sizeof(int64_t)}, native(stream),
         ids.data<int64_t>(), ids.count(), ignore, out.data<int64_t>());
}

}  // namespace gangway::cuda
