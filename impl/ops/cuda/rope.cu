#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/row_grid.h"

// T rows of H heads of width K, of which the first R elements turn. Rows repeat their positions after a
// period: row s + b * period has position s. Each thread rotates a pack of n neighbouring pairs of one head,
// or copies a pack of the rest, for some periods.
//
// Addresses are computed in packs, because nvcc cuts the store of a pack into those of its elements unless it
// sees that the address is a multiple of 16 bytes.

namespace gangway::cuda {
namespace {

template <typename T>
struct Rope {
  const T* x;
  T* y;
  const Wide<T>*cos_PR, *sin_PR;
  const int32_t* positions;  // null: the position of row t is t % period
  int64_t rows, period;
  int64_t x_stride, y_stride;  // in packs, as head_width and half, which is R / 2
  unsigned heads, head_width, half;
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
  const auto* const all_x = reinterpret_cast<const Pack<T, n>*>(p.x);
  auto* const all_y = reinterpret_cast<Pack<T, n>*>(p.y);
  const unsigned of_head = grid.packs / p.heads;
  for_row_packs(grid, p.period, [&](int64_t row, unsigned pack) {
    const unsigned head = pack / of_head, pair = pack % of_head;
    const bool turns = pair < p.half;
    S cosine[n] = {}, sine[n] = {};
    if (turns) {
      const int64_t angle = (p.positions != nullptr ? p.positions[row] : row) * p.half + pair;
      load_angles<n>(p.cos_PR + angle * n, cosine);
      load_angles<n>(p.sin_PR + angle * n, sine);
    }
    const unsigned at = head * p.head_width + pair;
    for (int64_t t = row + blockIdx.z * p.period; t < p.rows; t += gridDim.z * p.period) {
      const Pack<T, n>* const x = all_x + (t * p.x_stride + at);
      Pack<T, n>* const y = all_y + (t * p.y_stride + at);
      const Pack<T, n> second = x[p.half];
      if (!turns) {
        y[p.half] = second;
        continue;
      }
      const Pack<T, n> first = x[0];
      Pack<T, n> turned_first, turned_second;
      for (int j = 0; j < n; ++j) {
        const S c = cosine[j], s = p.direction * sine[j];
        const S a = widen(first.at[j]), b = widen(second.at[j]);
        turned_first.at[j] = narrow<T>(a * c - b * s);
        turned_second.at[j] = narrow<T>(b * c + a * s);
      }
      y[0] = turned_first;
      y[p.half] = turned_second;
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
    const int64_t copied = in_place ? 0 : head_width - 2 * half;  // of each head
    if (half + copied == 0) return;
    const int64_t period = std::min(rows, args.positions ? args.positions.dim(0) : args.sequence);
    const bool fit =
        fits_packs({address(args.x), address(args.y), address(args.cos), address(args.sin), row_bytes(args.x),
                    row_bytes(args.y), head_width * sizeof(T), half * sizeof(T), copied * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      const Rope<T> p = {args.x.data<T>(),
                         args.y.data<T>(),
                         args.cos.data<S>(),
                         args.sin.data<S>(),
                         args.positions ? args.positions.data<int32_t>() : nullptr,
                         rows,
                         period,
                         args.x.stride(0) / n(),
                         args.y.stride(0) / n(),
                         static_cast<unsigned>(args.heads),
                         static_cast<unsigned>(head_width / n()),
                         static_cast<unsigned>(half / n()),
                         args.inverse ? S(-1) : S(1)};
      const RowGrid grid = row_grid(args.heads * ((half + copied) / n()));
      launch("rope", rope_kernel<T, n()>, row_launch(grid, period, pieces(rows, period)), native(stream), p,
             grid);
    });
  });
}

}  // namespace gangway::cuda
