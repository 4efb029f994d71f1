#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

// T rows of H heads of width K. Each thread rotates n neighbouring pairs of one head.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct Rope {
  const T* x;
  T* y;
  const Wide<T>*cos_PK, *sin_PK;
  const int32_t* positions;  // null: the position of row t is t % period
  int64_t rows, heads, half, period, x_stride, y_stride;
  Wide<T> direction;  // -1 rotates by the opposite angle
};

template <typename T, int n>
__global__ void rope_kernel(Rope<T> p) {
  using S = Wide<T>;
  const int64_t of_head = p.half / n, of_row = p.heads * of_head, all = p.rows * of_row;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride) {
    const int64_t t = i / of_row, head = i % of_row / of_head, pair = i % of_head * n;
    const int64_t position = p.positions != nullptr ? p.positions[t % p.period] : t % p.period;
    const int64_t at = head * 2 * p.half + pair;
    const Pack<T, n> first = load<n>(p.x + t * p.x_stride + at),
                     second = load<n>(p.x + t * p.x_stride + at + p.half);
    Pack<T, n> turned_first, turned_second;
    for (int j = 0; j < n; ++j) {
      const S c = p.cos_PK[position * p.half + pair + j];
      const S s = p.direction * p.sin_PK[position * p.half + pair + j];
      const S a = widen(first.at[j]), b = widen(second.at[j]);
      turned_first.at[j] = narrow<T>(a * c - b * s);
      turned_second.at[j] = narrow<T>(b * c + a * s);
    }
    store<n>(p.y + t * p.y_stride + at, turned_first);
    store<n>(p.y + t * p.y_stride + at + p.half, turned_second);
  }
}

}  // namespace

void rope(const RopeArgs& args, Stream& stream) {
  const int64_t rows = args.x.dim(0), width = args.x.dim(1);
  if (rows == 0 || width == 0) return;
  with_float(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const int64_t half = width / args.heads / 2;
    const Rope<T> p = {args.x.data<T>(),
                       args.y.data<T>(),
                       args.cos.data<S>(),
                       args.sin.data<S>(),
                       args.positions ? args.positions.data<int32_t>() : nullptr,
                       rows,
                       args.heads,
                       half,
                       args.positions ? args.positions.dim(0) : args.sequence,
                       args.x.stride(0),
                       args.y.stride(0),
                       args.inverse ? S(-1) : S(1)};
    const bool fit = fits_packs(
        {address(args.x), address(args.y), row_bytes(args.x), row_bytes(args.y), half * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      launch("rope", rope_kernel<T, n()>, {blocks(pieces(rows * width / 2 / n(), kThreads)), kThreads, 0},
             native(stream), p);
    });
  });
}

}  // namespace gangway::cuda
