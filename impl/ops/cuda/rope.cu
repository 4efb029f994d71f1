#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

// T rows of H heads of width K, of which the first R elements turn. Each thread rotates n neighbouring pairs
// of one head, or copies n neighbouring elements of the rest.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct Rope {
  const T* x;
  T* y;
  const Wide<T>*cos_PR, *sin_PR;
  const int32_t* positions;  // null: the position of row t is t % period
  int64_t rows, heads, head_width, half, period, x_stride, y_stride;
  int64_t copied;     // the number of elements of a head to copy: K - R, or 0 in place
  Wide<T> direction;  // -1 rotates by the opposite angle
};

template <typename T, int n>
__global__ void rope_kernel(Rope<T> p) {
  using S = Wide<T>;
  const int64_t turning = p.half / n, of_head = turning + p.copied / n;
  const int64_t of_row = p.heads * of_head, all = p.rows * of_row;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride) {
    const int64_t t = i / of_row, head = i % of_row / of_head, pair = i % of_head * n;
    if (pair >= p.half) {
      const int64_t at = head * p.head_width + p.half + pair;
      store<n>(p.y + t * p.y_stride + at, load<n>(p.x + t * p.x_stride + at));
      continue;
    }
    const int64_t position = p.positions != nullptr ? p.positions[t % p.period] : t % p.period;
    const int64_t at = head * p.head_width + pair;
    const Pack<T, n> first = load<n>(p.x + t * p.x_stride + at),
                     second = load<n>(p.x + t * p.x_stride + at + p.half);
    Pack<T, n> turned_first, turned_second;
    for (int j = 0; j < n; ++j) {
      const S c = p.cos_PR[position * p.half + pair + j];
      const S s = p.direction * p.sin_PR[position * p.half + pair + j];
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
    const int64_t head_width = width / args.heads, half = args.cos.dim(1);
    const bool in_place = args.x.raw() == args.y.raw() && args.x.stride(0) == args.y.stride(0);
    const int64_t copied = in_place ? 0 : head_width - 2 * half;
    if (half + copied == 0) return;
    const Rope<T> p = {args.x.data<T>(),
                       args.y.data<T>(),
                       args.cos.data<S>(),
                       args.sin.data<S>(),
                       args.positions ? args.positions.data<int32_t>() : nullptr,
                       rows,
                       args.heads,
                       head_width,
                       half,
                       args.positions ? args.positions.dim(0) : args.sequence,
                       args.x.stride(0),
                       args.y.stride(0),
                       copied,
                       args.inverse ? S(-1) : S(1)};
    const bool fit = fits_packs({address(args.x), address(args.y), row_bytes(args.x), row_bytes(args.y),
                                 head_width * sizeof(T), half * sizeof(T), copied * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      const int64_t threads = rows * args.heads * ((half + copied) / n());
      launch("rope", rope_kernel<T, n()>, {blocks(pieces(threads, kThreads)), kThreads, 0}, native(stream),
             p);
    });
  });
}

}  // namespace gangway::cuda
