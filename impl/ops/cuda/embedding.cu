#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

// T tokens, V rows of the table, width D.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int n>
__global__ void embedding_kernel(const T* table_VD, const int64_t* ids_T, T* y_TD, int64_t tokens,
                                 int64_t rows, int64_t width, int64_t first_row, int64_t all_rows) {
  for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x) {
    const int64_t id = ids_T[t];
    const bool inside = id >= first_row && id < first_row + rows, elsewhere = id >= 0 && id < all_rows;
    for (int64_t d = static_cast<int64_t>(threadIdx.x) * n; d < width;
         d += static_cast<int64_t>(blockDim.x) * n) {
      Pack<T, n> row;
      if (inside)
        row = load<n>(table_VD + (id - first_row) * width + d);
      else
        for (int i = 0; i < n; ++i) row.at[i] = narrow<T>(static_cast<Wide<T>>(elsewhere ? 0 : NAN));
      store<n>(y_TD + t * width + d, row);
    }
  }
}

// The block of the first token with an id adds the gradients of all tokens with that id, in the order of t.
// So the order is fixed without sorting and without atomics. Each block reads at most T ids, which come from
// the cache.
template <typename T, int n>
__global__ void embedding_backward_kernel(const int64_t* ids_T, const T* dy_TD, Wide<T>* dtable_VD,
                                          int64_t tokens, int64_t rows, int64_t width, int64_t first_row) {
  using S = Wide<T>;
  unsigned* const votes = block_memory<unsigned>();  // one mask for each warp
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  for (int64_t mine = blockIdx.x; mine < tokens; mine += gridDim.x) {
    const int64_t id = ids_T[mine];
    bool first = id >= first_row && id < first_row + rows;
    for (int64_t begin = 0; first && begin < tokens; begin += blockDim.x) {
      const int64_t t = begin + threadIdx.x;
      const unsigned found = __ballot_sync(kWholeWarp, t < tokens && ids_T[t] == id);
      if (lane == 0) votes[warp] = found;
      __syncthreads();
      for (int w = 0; first && w < warps; ++w)
        for (unsigned left = votes[w]; first && left != 0; left &= left - 1) {
          const int64_t from = begin + w * kWarpSize + __ffs(static_cast<int>(left)) - 1;
          first = from >= mine;
          if (!first) break;
          for (int64_t d = static_cast<int64_t>(threadIdx.x) * n; d < width;
               d += static_cast<int64_t>(blockDim.x) * n) {
            const Pack<T, n> dy = load<n>(dy_TD + from * width + d);
            for (int i = 0; i < n; ++i)
              dtable_VD[(id - first_row) * width + d + i] += static_cast<S>(widen(dy.at[i]));
          }
        }
      __syncthreads();
    }
  }
}

int threads_for(int64_t width, int n) {
  return static_cast<int>(
      std::clamp<int64_t>(pieces(pieces(width, n), kWarpSize) * kWarpSize, kWarpSize, kThreads));
}

}  // namespace

void embedding(const EmbeddingArgs& args, Stream& stream) {
  const int64_t tokens = args.ids.dim(0), rows = args.table.dim(0), width = args.table.dim(1);
  if (tokens == 0 || width == 0) return;
  with_float(args.table.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool fit = fits_packs({address(args.table), address(args.y), width * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      launch("embedding", embedding_kernel<T, n()>, {blocks(tokens), threads_for(width, n()), 0},
             native(stream), args.table.data<T>(), args.ids.data<int64_t>(), args.y.data<T>(), tokens, rows,
             width, args.first_row, args.rows == 0 ? rows : args.rows);
    });
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args, Stream& stream) {
  const int64_t tokens = args.ids.dim(0), rows = args.dtable.dim(0), width = args.dtable.dim(1);
  if (tokens == 0 || width == 0) return;
  with_float(args.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool fit = fits_packs({address(args.dy), address(args.dtable), width * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      launch("embedding_backward", embedding_backward_kernel<T, n()>,
             {blocks(tokens), kThreads, kThreads / kWarpSize * sizeof(unsigned)}, native(stream),
             args.ids.data<int64_t>(), args.dy.data<T>(), args.dtable.data<Wide<T>>(), tokens, rows, width,
             args.first_row);
    });
  });
}

}  // namespace gangway::cuda
