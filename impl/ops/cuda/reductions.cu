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
#pragma unroll 4  // loads in flight
  for (int64_t t = first; t < last; ++t) {
    const Pack<T, n> x = load<n>(x_TD + t * columns + column);
    for (int e = 0; e < n; ++e) sum.at[e] += widen(x.at[e]);
  }
  store<n>(partials_PD + blockIdx.y * columns + column, sum);
}

// A block sums up kWarpSize neighbouring columns. Each of its warps adds every kStrips-th row, and then one
// warp adds the sums of all warps.
constexpr int kStrips = 8;
template <typename S>
__global__ void add_partials_kernel(const S* partials_PD, int64_t parts, int64_t columns, S* y_D) {
  S* const sums = block_memory<S>();
  const int strip = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  S sum = 0;
  if (column < columns) {
#pragma unroll 8  // loads in flight
    for (int64_t p = strip; p < parts; p += kStrips) sum += partials_PD[p * columns + column];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (strip != 0 || column >= columns) return;
  for (int i = 1; i < kStrips; ++i) sum += sums[i * kWarpSize + lane];
  y_D[column] += sum;
}

enum class Power : int { one, two, any, infinity };

template <Power power>
__device__ inline double power_of(double x, double p) {
  const double size = fabs(x);
  if constexpr (power == Power::two) return size * size;
  if constexpr (power == Power::any) return pow(size, p);
  return size;
}
template <Power power>
__device__ inline double fold_power(double value, double* scratch) {
  return power == Power::infinity ? block_fold(value, 0.0, scratch, Largest()) : block_sum(value, scratch);
}
template <Power power>
__device__ inline double join_powers(double a, double b) {
  return power == Power::infinity ? Largest()(a, b) : a + b;
}

// Returns the sum of the powers of all elements. Sums of absolute values and squares of up to f32 are
// computed in f32, where the result shows that no square was too large or too small for it.
template <Power power, typename T, int n, int count>
__device__ double powers_of(const Pack<T, n> (&packs)[count], double p) {
  if constexpr (sizeof(T) < sizeof(double) && (power == Power::one || power == Power::two)) {
    constexpr float kLeast = power == Power::two ? 0x1p-100f : 0.0f, kMost = 0x1p127f;
    float sum = 0;
    for (const Pack<T, n>& pack : packs)
      for (int e = 0; e < n; ++e) {
        const float x = widen(pack.at[e]);
        sum += power == Power::two ? x * x : fabsf(x);
      }
    if (sum >= kLeast && sum <= kMost) return sum;
  }
  double sum = 0;
  for (const Pack<T, n>& pack : packs)
    for (int e = 0; e < n; ++e)
      sum = join_powers<power>(sum, power_of<power>(static_cast<double>(widen(pack.at[e])), p));
  return sum;
}

// Each thread has kLoads packs in flight. The mapping of elements to threads depends only on the count and on
// whether accesses of 16 bytes are possible.
constexpr int kLoads = 4;
template <typename T, int n, Power power>
__global__ void norm_power_kernel(const T* x, int64_t count, double p, double* partials) {
  double* const scratch = block_memory<double>();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x, packs = count / n;
  double sum = 0;
  int64_t i = thread;
#pragma unroll 1
  for (; i + (kLoads - 1) * threads < packs; i += kLoads * threads) {
    Pack<T, n> loaded[kLoads];
    for (int l = 0; l < kLoads; ++l) loaded[l] = load<n>(x + (i + l * threads) * n);
    sum = join_powers<power>(sum, powers_of<power>(loaded, p));
  }
#pragma unroll 1  // of both rests: the number of iterations would be a division in 64 bits
  for (; i < packs; i += threads) {
    const Pack<T, n> loaded[1] = {load<n>(x + i * n)};
    sum = join_powers<power>(sum, powers_of<power>(loaded, p));
  }
#pragma unroll 1
  for (i = packs * n + thread; i < count; i += threads)
    sum = join_powers<power>(sum, power_of<power>(static_cast<double>(widen(x[i])), p));
  sum = fold_power<power>(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}
template <Power power>
__global__ void add_norm_power_kernel(const double* partials, int64_t parts, double* out) {
  double* const scratch = block_memory<double>();
  const double mine = static_cast<int64_t>(threadIdx.x) < parts ? partials[threadIdx.x] : 0.0;
  const double sum = fold_power<power>(mine, scratch);
  if (threadIdx.x == 0) *out = join_powers<power>(*out, sum);
}

__device__ inline uint32_t checksum_term(uint32_t word, uint32_t place) {
  const uint32_t m = place * 0x9E3779B1u;
  return word * ((m ^ (m >> 15)) | 1u);
}

// Blocks add their sums in any order, which changes no integer.
template <int n>
__global__ void checksum_kernel(const uint32_t* words, int64_t count, uint32_t key, uint32_t* sum) {
  uint32_t* const scratch = block_memory<uint32_t>();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x, packs = count / n;
  uint32_t total = 0;
  const auto add = [&](const Pack<uint32_t, n>& pack, int64_t at) {
    for (int e = 0; e < n; ++e) total += checksum_term(pack.at[e], key + static_cast<uint32_t>(at * n + e));
  };
  int64_t i = thread;
#pragma unroll 1
  for (; i + (kLoads - 1) * threads < packs; i += kLoads * threads) {
    Pack<uint32_t, n> loaded[kLoads];
    for (int l = 0; l < kLoads; ++l) loaded[l] = load<n>(words + (i + l * threads) * n);
    for (int l = 0; l < kLoads; ++l) add(loaded[l], i + l * threads);
  }
#pragma unroll 1
  for (; i < packs; i += threads) add(load<n>(words + i * n), i);
#pragma unroll 1
  for (i = packs * n + thread; i < count; i += threads)
    total += checksum_term(words[i], key + static_cast<uint32_t>(i));
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) atomicAdd(sum, total);
}

// Calls body(std::integral_constant<Power, power>()).
template <typename Body>
void with_power(double p, Body&& body) {
  if (p == 1) return body(std::integral_constant<Power, Power::one>());
  if (p == 2) return body(std::integral_constant<Power, Power::two>());
  if (p > 1e300) return body(std::integral_constant<Power, Power::infinity>());
  body(std::integral_constant<Power, Power::any>());
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
  const auto add = [&](auto type) {
    using S = decltype(type);
    constexpr int threads = kStrips * kWarpSize;
    launch("add_partials", add_partials_kernel<S>,
           {blocks(pieces(columns, kWarpSize)), threads, threads * sizeof(S)}, native(stream),
           static_cast<const S*>(partials), rows, columns, static_cast<S*>(y));
  };
  if (dtype == DType::f64) return add(double{});
  add(float{});
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
  const int64_t parts = std::min(kMostParts, pieces(count, kThreads * 8));
  double* const partials =
      static_cast<double*>(workspace(stream, static_cast<size_t>(parts) * sizeof(double)));
  const size_t shared = kWarpSize * sizeof(double);
  with_power(p, [&](auto power) {
    with_float(x.dtype(), [&](auto type) {
      using T = decltype(type);
      with_packs<T>(fits_packs({address(x)}), [&](auto n) {
        launch("norm_power", norm_power_kernel<T, n(), power()>, {blocks(parts), kThreads, shared},
               native(stream), x.data<T>(), count, p, partials);
      });
    });
    launch("norm_power", add_norm_power_kernel<power()>, {dim3(1), static_cast<int>(kMostParts), shared},
           native(stream), partials, parts, out.data<double>());
  });
}

// Of the 64 bits of the sum it changes the lower half alone, which comes first in memory.
void checksum(const ChecksumArgs& args, Stream& stream) {
  const auto count = static_cast<int64_t>(args.x.bytes() / sizeof(uint32_t));
  if (count == 0) return;
  const int64_t parts = std::min(kMostParts, pieces(count, kThreads * 8));
  with_packs<uint32_t>(fits_packs({address(args.x)}), [&](auto n) {
    launch("checksum", checksum_kernel<n()>, {blocks(parts), kThreads, kWarpSize * sizeof(uint32_t)},
           native(stream), static_cast<const uint32_t*>(args.x.raw()), count, args.key,
           static_cast<uint32_t*>(args.sum.raw()));
  });
}

void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) {
  launch("id_range", id_range_kernel, {dim3(1), 1024, kWarpSize * sizeof(int64_t)}, native(stream),
         ids.data<int64_t>(), ids.count(), ignore, out.data<int64_t>());
}

}  // namespace gangway::cuda
