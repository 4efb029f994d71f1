#include "base/philox_math.h"
#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/row_grid.h"

// The results have the same bits as those of base/philox.h, so the build turns off the contraction of
// products and sums for this file (CMakeLists.txt).

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;

// Thread i makes those of the two elements of counter block first / 2 + i that lie in [first, first + count).
template <typename T>
__global__ void fill_normal_kernel(T* y, uint64_t key, uint64_t first, int64_t count, double deviation) {
  const uint64_t begin = first / 2, end = (first + static_cast<uint64_t>(count) + 1) / 2;
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t b = begin + static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; b < end;
       b += threads) {
    const philox_math::Polar p = philox_math::polar(key, b);
    const double radius = sqrt(p.radius_squared);
    if (2 * b >= first) y[2 * b - first] = narrow<T>(radius * p.x * deviation);
    if (2 * b + 1 < first + static_cast<uint64_t>(count))
      y[2 * b + 1 - first] = narrow<T>(radius * p.y * deviation);
  }
}

template <typename T>
struct Dropout {
  const T* x_TD;
  T* y_TD;
  const int64_t* rows_T;  // null: row t is first_row + t
  uint64_t key;
  double probability;
  int64_t rows, width, first_row, first_column, columns;
};

// Each thread has n neighbouring elements of a row. Two neighbouring numbers share a counter block.
template <typename T, int n>
__global__ void dropout_kernel(Dropout<T> p, RowGrid grid) {
  using S = Wide<T>;
  const S kept = static_cast<S>(1 - p.probability);
  for_row_packs(grid, p.rows, [&](int64_t t, unsigned at) {
    const int64_t d = static_cast<int64_t>(at) * n;
    const int64_t row = p.rows_T != nullptr ? p.rows_T[t] : p.first_row + t;
    const uint64_t first = static_cast<uint64_t>(row * p.columns + p.first_column + d);
    Pack<T, n> pack = load<n>(p.x_TD + t * p.width + d);
    PhiloxBlock block{};
    for (int e = 0; e < n; ++e) {
      const uint64_t number = first + static_cast<uint64_t>(e);
      if (e == 0 || number % 2 == 0) block = philox_math::block_of(p.key, number / 2);
      const bool drops = philox_math::lane_uniform(block, number % 2 != 0) < p.probability;
      pack.at[e] = narrow<T>(drops ? S(0) : widen(pack.at[e]) / kept);
    }
    store<n>(p.y_TD + t * p.width + d, pack);
  });
}

}  // namespace

void dropout(const DropoutArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  if (rows == 0 || width == 0) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Dropout<T> p = {args.x.data<T>(),
                          args.y.data<T>(),
                          args.rows ? args.rows.data<int64_t>() : nullptr,
                          args.key,
                          args.probability,
                          rows,
                          width,
                          args.first_row,
                          args.first_column,
                          args.columns};
    const bool fit = fits_packs({address(args.x), address(args.y), width * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      const RowGrid grid = row_grid(width / n());
      launch("dropout", dropout_kernel<T, n()>, row_launch(grid, rows), native(stream), p, grid);
    });
  });
}

void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation, Stream& stream) {
  const int64_t count = y.count();
  if (count == 0) return;
  with_float(y.dtype(), [&](auto type) {
    using T = decltype(type);
    launch("fill_normal", fill_normal_kernel<T>, {blocks(pieces(count / 2 + 1, kThreads)), kThreads, 0},
           native(stream), y.data<T>(), key, first_element, count, deviation);
  });
}

}  // namespace gangway::cuda
