#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/row_grid.h"

// T rows of H heads of width K, of which the first R elements turn. Rows repeat their positions after a
// period:
// row s + b * period has position s. Each thread rotates n neighbouring pairs of one head, or copies n
// neighbouring elements of the rest, for some periods.

namespace gangway::cuda {
namespace {

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

// Loads n angles in accesses of up to 16 bytes.
template <int n, typename S>
__device__ void load_angles(const S* from, S (&to)[n]) {
  constexpr int of_pack = n < kPack<S> ? n : kPack<S>;
  for (int i = 0; i < n; i += of_pack) {
    const Pack<S, of_pack> pack = load<of_pack>(from + i);
    for (int j = 0; j < of_pack; ++j) to[i + j] = pack.at[j];
  }
}

// `grid` is over the rows of one period, and the third dimension of the launch over the periods.
template <typename T, int n>
__global__ void rope_kernel(Rope<T> p, RowGrid grid) {
  using S = Wide<T>;
  const unsigned of_head = grid.packs / static_cast<unsigned>(p.heads);
  for_row_packs(grid, p.period, [&](int64_t row, unsigned pack) {
    const int64_t head = pack / of_head, pair = static_cast<int64_t>(pack % of_head) * n;
    const bool turns = pair < p.half;
    S cosine[n] = {}, sine[n] = {};
    if (turns) {
      const int64_t angle = (p.positions != nullptr ? p.positions[row] : row) * p.half + pair;
      load_angles<n>(p.cos_PR + angle, cosine);
      load_angles<n>(p.sin_PR + angle, sine);
    }
    const int64_t at = head * p.head_width + pair;
    for (int64_t t = row + blockIdx.z * p.period; t < p.rows; t += gridDim.z * p.period) {
      const T* const x = p.x + t * p.x_stride + at;
      T* const y = p.y + t * p.y_stride + at;
      const Pack<T, n> second = load<n>(x + p.half);
      if (!turns) {
        store<n>(y + p.half, second);
        continue;
      }
      const Pack<T, n> first = load<n>(x);
      Pack<T, n> turned_first, turned_second;
      for (int j = 0; j < n; ++j) {
        const S c = cosine[j], s = p.direction * sine[j];
        const S a = widen(first.at[j]), b = widen(second.at[j]);
        turned_first.at[j] = narrow<T>(a * c - b * s);
        turned_second.at[j] = narrow<T>(b * c + a * s);
      }
      store<n>(y, turned_first);
      store<n>(y + p.half, turned_second);
    }
  });
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
                       std::min(rows, args.positions ? args.positions.dim(0) : args.sequence),
                       args.x.stride(0),
                       args.y.stride(0),
                       copied,
                       args.inverse ? S(-1) : S(1)};
    const bool fit =
        fits_packs({address(args.x), address(args.y), address(args.cos), address(args.sin), row_bytes(args.x),
                    row_bytes(args.y), head_width * sizeof(T), half * sizeof(T), copied * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      const RowGrid grid = row_grid(args.heads * ((half + copied) / n()));
      launch("rope", rope_kernel<T, n()>, row_launch(grid, p.period, pieces(rows, p.period)), native(stream),
             p, grid);
    });
  });
}

}  // namespace gangway::cuda
