#include "ops/cuda/attention_tiles.h"
#include "ops/cuda/reduce.h"

// The backward in f32 and f64, and for every dtype the row sums of out * dout. The kernels recompute the
// weights from lse (Dao, "FlashAttention-2", 2023) and use no atomics: in one kernel a block has a tile of
// queries and makes dq; in the other it has a tile of keys and makes dk and dv over all query heads of its
// group. Every sum has a fixed order.

namespace gangway::cuda {
namespace {

// Each warp computes one row of one head.
template <typename T>
__global__ void along_kernel(Backward<T> p, int64_t all) {
  using S = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarpSize;
  if (warp >= all) return;
  const int64_t s = warp % p.sight.q_rows, h = warp / p.sight.q_rows % p.heads,
                b = warp / p.sight.q_rows / p.heads;
  const T *const out = p.out.row(b, s, h), *const dout = p.dout.row(b, s, h);
  S sum = 0;
  for (int e = lane; e < p.width; e += kWarpSize) sum += widen(out[e]) * widen(dout[e]);
  sum = warp_fold(sum, Add());
  if (lane == 0) p.along_BHS[warp] = sum;
}

// Each block adds one head's gradient of its sink: the sink's weight times -along, summed over all rows.
template <typename T>
__global__ void dsinks_kernel(Backward<T> p, int64_t batch, const T* sinks_H, Wide<T>* dsinks_H) {
  using S = Wide<T>;
  S* const scratch = block_memory<S>();
  const int64_t h = blockIdx.x, rows = p.sight.q_rows;
  const S sink = widen(sinks_H[h]);
  S sum = 0;
  for (int64_t row = threadIdx.x; row < batch * rows; row += blockDim.x) {
    const int64_t at = (row / rows * p.heads + h) * rows + row % rows;
    sum += exp(sink - p.lse_BHS[at]) * p.along_BHS[at];
  }
  sum = block_sum(sum, scratch);
  // A sink of -infinity has no weight. Rows that see no key have an lse of -infinity then, and the sum is NaN.
  if (threadIdx.x == 0 && sink != -static_cast<S>(INFINITY)) dsinks_H[h] -= sum;
}

// Turns scores and products of a tile into weights and their scaled gradients. The rows of the tile are
// queries (queries_are_rows) or keys.
template <bool queries_are_rows, bool general, int count, typename T, typename S>
__device__ void weigh(const Backward<T>& p, int64_t b, int64_t h, int64_t first_row, int64_t first_column,
                      S (&score)[count][count], S (&dweight)[count][count]) {
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll  // tanh makes the loops too long for the compiler to do so by itself
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int64_t row = first_row + ty + kSide * i, column = first_column + tx + kSide * j;
      const int64_t query = queries_are_rows ? row : column, key = queries_are_rows ? column : row;
      const bool seen = p.sight.template sees<general>(b, query, key);
      const int64_t at = (b * p.heads + h) * p.sight.q_rows + query;
      S scaled = score[i][j] * p.scale, slope = p.scale;
      if constexpr (general)
        if (p.cap > 0) {
          const S part = tanh(scaled / p.cap);
          scaled = p.cap * part;
          slope *= S(1) - part * part;
        }
      score[i][j] = seen ? exp(scaled - p.lse_BHS[at]) : S(0);
      dweight[i][j] = seen ? score[i][j] * (dweight[i][j] - p.along_BHS[at]) * slope : S(0);
    }
}

template <int tile, int count, typename S>
__device__ void store_tile(const S (&values)[count][count], S* to) {
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) to[(ty + kSide * i) * (tile + 1) + tx + kSide * j] = values[i][j];
}

template <typename T, int rows, int columns, typename S>
__device__ void put_rows(const Gradient& to, int64_t b, int64_t h, int64_t first, int64_t end, int width,
                         const S (&sum)[rows][columns]) {
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      if (first + ty + kSide * i < end && tx + kSide * j < width)
        put<T>(to, b, first + ty + kSide * i, h, tx + kSide * j, sum[i][j]);
}

template <typename T, int most_width, bool general>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_dq_kernel(Backward<T> p) {
  using S = Wide<T>;
  constexpr int tile = kBackwardTile<S, most_width>, stride = most_width + 1;
  constexpr int count = tile / kSide, columns = most_width / kSide;
  S* const q = block_memory<S>();
  S* const dout = q + tile * stride;
  S* const k = dout + tile * stride;
  S* const v = k + tile * stride;
  S* const dweights = v + tile * stride;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tile, h = blockIdx.y, b = blockIdx.z;
  const int64_t group = h / (p.heads / p.groups);
  load_tile<tile, stride>(p.q, b, h, first, p.sight.q_rows, p.width, q);
  load_tile<tile, stride>(p.dout, b, h, first, p.sight.q_rows, p.width, dout);
  S sum[count][columns] = {};
  const Span keys = p.sight.template keys_of_tile<general>(b, first, tile);
  for (int64_t key = keys.begin; key < keys.end; key += tile) {
    load_tile<tile, stride>(p.k, b, group, key, p.sight.k_rows, p.width, k);
    load_tile<tile, stride>(p.v, b, group, key, p.sight.k_rows, p.width, v);
    __syncthreads();
    S score[count][count], dweight[count][count];
    multiply_rows<count, stride>(q, k, p.width, score);
    multiply_rows<count, stride>(dout, v, p.width, dweight);
    weigh<true, general>(p, b, h, first, key, score, dweight);
    store_tile<tile>(dweight, dweights);
    __syncthreads();
    add_weighted_rows<tile, columns, stride>(dweights, k, sum);
    __syncthreads();
  }
  put_rows<T>(p.dq, b, h, first, p.sight.q_rows, p.width, sum);
}

template <typename T, int most_width, bool general>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_dkv_kernel(Backward<T> p) {
  using S = Wide<T>;
  constexpr int tile = kBackwardTile<S, most_width>, stride = most_width + 1;
  constexpr int count = tile / kSide, columns = most_width / kSide;
  S* const q = block_memory<S>();
  S* const dout = q + tile * stride;
  S* const k = dout + tile * stride;
  S* const v = k + tile * stride;
  S* const weights = v + tile * stride;
  S* const dweights = weights + tile * (tile + 1);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tile, group = blockIdx.y, b = blockIdx.z;
  const int64_t of_group = p.heads / p.groups;
  load_tile<tile, stride>(p.k, b, group, first, p.sight.k_rows, p.width, k);
  load_tile<tile, stride>(p.v, b, group, first, p.sight.k_rows, p.width, v);
  S dk[count][columns] = {}, dv[count][columns] = {};
  const Span queries = p.sight.template queries_of_tile<general>(b, first, tile, tile);
  for (int64_t h = group * of_group; h < (group + 1) * of_group; ++h)
    for (int64_t query = queries.begin; query < queries.end; query += tile) {
      load_tile<tile, stride>(p.q, b, h, query, p.sight.q_rows, p.width, q);
      load_tile<tile, stride>(p.dout, b, h, query, p.sight.q_rows, p.width, dout);
      __syncthreads();
      S score[count][count], dweight[count][count];
      multiply_rows<count, stride>(k, q, p.width, score);
      multiply_rows<count, stride>(v, dout, p.width, dweight);
      weigh<false, general>(p, b, h, first, query, score, dweight);
      store_tile<tile>(score, weights);
      store_tile<tile>(dweight, dweights);
      __syncthreads();
      add_weighted_rows<tile, columns, stride>(weights, dout, dv);
      add_weighted_rows<tile, columns, stride>(dweights, q, dk);
      __syncthreads();
    }
  put_rows<T>(p.dk, b, group, first, p.sight.k_rows, p.width, dk);
  put_rows<T>(p.dv, b, group, first, p.sight.k_rows, p.width, dv);
}

Gradient gradient_of(const Tensor& t, bool accumulate) {
  const bool wide = t.dtype() == DType::f64 || t.dtype() == DType::f32;
  return {t.raw(), t.stride(0), t.stride(1), t.stride(2), wide, accumulate};
}

template <typename T>
void run(const Backward<T>& p, int64_t batch, const T* sinks_H, Wide<T>* dsinks_H, Stream& stream) {
  using S = Wide<T>;
  const int64_t rows = batch * p.heads * p.sight.q_rows;
  constexpr int kThreads = 256;
  if (rows > 0)
    launch("attention_along", along_kernel<T>, {blocks(pieces(rows * kWarpSize, kThreads)), kThreads, 0},
           native(stream), p, rows);
  if (dsinks_H != nullptr)
    launch("attention_dsinks", dsinks_kernel<T>,
           {static_cast<unsigned>(p.heads), kThreads, kWarpSize * sizeof(S)}, native(stream), p, batch,
           sinks_H, dsinks_H);
  if constexpr (sizeof(T) == 2)
    attention_backward_on_tensor_cores(p, batch, stream);
  else
    with_head_width("attention_backward", p.width, [&](auto most) {
      constexpr int tile = kBackwardTile<S, most()>;
      constexpr size_t rows_bytes = 4 * tile * (most() + 1) * sizeof(S),
                       weights_bytes = tile * (tile + 1) * sizeof(S);
      const auto grid = [&](int64_t of_rows, int64_t heads) {
        return dim3(blocks(pieces(of_rows, tile)), static_cast<unsigned>(heads),
                    static_cast<unsigned>(batch));
      };
      with_generality(p.is_general(), [&](auto general) {
        if (rows > 0)
          launch("attention_dq", attention_dq_kernel<T, most(), general()>,
                 {grid(p.sight.q_rows, p.heads), kAttentionThreads, rows_bytes + weights_bytes},
                 native(stream), p);
        if (p.sight.k_rows > 0)
          launch("attention_dkv", attention_dkv_kernel<T, most(), general()>,
                 {grid(p.sight.k_rows, p.groups), kAttentionThreads, rows_bytes + 2 * weights_bytes},
                 native(stream), p);
      });
    });
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args, Stream& stream) {
  const int64_t batch = args.q.dim(0), rows = args.q.dim(1), heads = args.q.dim(2), width = args.q.dim(3);
  if (batch == 0 || heads == 0 || width == 0) return;
  with_float(args.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    S* const along_BHS =
        static_cast<S*>(workspace(stream, static_cast<size_t>(batch * heads * rows + 1) * sizeof(S)));
    run<T>({heads_of<const T>(args.q), heads_of<const T>(args.k), heads_of<const T>(args.v),
            heads_of<const T>(args.out), heads_of<const T>(args.dout), gradient_of(args.dq, args.accumulate),
            gradient_of(args.dk, args.accumulate), gradient_of(args.dv, args.accumulate), args.lse.data<S>(),
            along_BHS, sight_of(args), heads, args.k.dim(2), static_cast<int>(width),
            static_cast<S>(args.scale), static_cast<S>(args.cap)},
           batch, args.sinks ? args.sinks.data<T>() : nullptr,
           args.sinks && args.dsinks ? args.dsinks.data<S>() : nullptr, stream);
  });
}

}  // namespace gangway::cuda
