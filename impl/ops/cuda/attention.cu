#include "ops/cuda/attention_tiles.h"
#include "ops/cuda/reduce.h"

// The forward in f32 and f64 (Dao, "FlashAttention-2", 2023). A block has a tile of queries and iterates over
// tiles of keys. It never stores scores in global memory.

namespace gangway::cuda {
namespace {

// The launch bounds limit the registers so that as many blocks run at a time as shared memory allows. Without
// them nvcc spills at width 128.
template <typename T, int most_width, bool general>
__global__ void __launch_bounds__(kAttentionThreads, most_width <= 64 ? 3 : 2)
    attention_kernel(Forward<T> p) {
  using S = Wide<T>;
  constexpr int tile = kForwardTile<S, most_width>, stride = most_width + 1;
  constexpr int count = tile / kSide, columns = most_width / kSide;
  S* const q = block_memory<S>();
  S* const kv = q + tile * stride;
  S* const weights = kv + tile * stride;
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tile, h = blockIdx.y, b = blockIdx.z;
  const int64_t group = h / (p.heads / p.groups);
  const S none = -static_cast<S>(INFINITY);

  load_tile<tile, stride>(p.q, b, h, first, p.sight.q_rows, p.width, q);
  S most[count], total[count], sum[count][columns];
  S sink = none;
  if constexpr (general)
    if (p.sinks_H != nullptr) sink = widen(p.sinks_H[h]);
  for (int i = 0; i < count; ++i) {
    most[i] = sink;
    total[i] = sink == none ? S(0) : S(1);  // the weight of the sink
    for (int j = 0; j < columns; ++j) sum[i][j] = 0;
  }
  const Span keys = p.sight.template keys_of_tile<general>(b, first, tile);
  for (int64_t key = keys.begin; key < keys.end; key += tile) {
    load_tile<tile, stride>(p.k, b, group, key, p.sight.k_rows, p.width, kv);
    __syncthreads();
    S score[count][count];
    multiply_rows<count, stride>(q, kv, p.width, score);
    for (int i = 0; i < count; ++i) {
      S highest = none;
      for (int j = 0; j < count; ++j) {
        const bool seen = p.sight.template sees<general>(b, first + ty + kSide * i, key + tx + kSide * j);
        S scaled = score[i][j] * p.scale;
        if constexpr (general)
          if (p.cap > 0) scaled = p.cap * tanh(scaled / p.cap);
        score[i][j] = seen ? scaled : none;
        highest = score[i][j] > highest ? score[i][j] : highest;
      }
      highest = row_fold(highest, Largest());
      const S before = most[i];
      if (highest > most[i]) most[i] = highest;
      // A row that has seen no key yet gets weights 0. exp(-infinity + infinity) would be NaN.
      const S shift = most[i] == none ? S(0) : most[i];
      S added = 0;
      for (int j = 0; j < count; ++j) {
        const S weight = score[i][j] == none ? S(0) : exp(score[i][j] - shift);
        weights[(ty + kSide * i) * (tile + 1) + tx + kSide * j] = weight;
        added += weight;
      }
      const S kept = before == none ? S(0) : exp(before - shift);
      total[i] = total[i] * kept + row_fold(added, Add());
      for (int j = 0; j < columns; ++j) sum[i][j] *= kept;
    }
    __syncthreads();  // keys are read, weights are written
    load_tile<tile, stride>(p.v, b, group, key, p.sight.k_rows, p.width, kv);
    __syncthreads();
    add_weighted_rows<tile, columns, stride>(weights, kv, sum);
    __syncthreads();
  }
  for (int i = 0; i < count; ++i) {
    const int64_t row = first + ty + kSide * i;
    if (row >= p.sight.q_rows) continue;
    const S factor = total[i] == S(0) ? S(0) : S(1) / total[i];
    T* const out = p.out.row(b, row, h);
    for (int j = 0; j < columns; ++j)
      if (tx + kSide * j < p.width)
        out[tx + kSide * j] = narrow<T>(total[i] == S(0) ? S(0) : sum[i][j] * factor);
    if (p.lse_BHS != nullptr && tx == 0)
      p.lse_BHS[(b * p.heads + h) * p.sight.q_rows + row] = total[i] == S(0) ? none : most[i] + log(total[i]);
  }
}

struct Statistics {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

template <typename T>
struct Merge {
  Heads<Wide<T>> out;
  Heads<const T> part;
  Statistics lse, part_lse;
  int64_t rows, heads, all;
  int width;
};

// Each warp merges one row of one head.
template <typename T>
__global__ void attention_merge_kernel(Merge<T> p) {
  using S = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarpSize;
  if (warp >= p.all) return;
  const int64_t h = warp % p.heads, s = warp / p.heads % p.rows, b = warp / p.heads / p.rows;
  const auto at = [&](const Statistics& of) {
    return static_cast<S*>(of.data) + b * of.batch_stride + h * of.head_stride + s * of.row_stride;
  };
  const S before = *at(p.lse), part_lse = *at(p.part_lse);
  __syncwarp();  // all lanes have read lse before lane 0 writes it
  if (part_lse == -static_cast<S>(INFINITY)) return;
  const S weight = S(1) / (S(1) + exp(before - part_lse));  // 1 for an lse of -infinity
  S* const out = p.out.row(b, s, h);
  const T* const part = p.part.row(b, s, h);
  for (int d = lane; d < p.width; d += kWarpSize)
    out[d] += weight * (static_cast<S>(widen(part[d])) - out[d]);
  const S above = part_lse - before, most = above > 0 ? part_lse : before;
  if (lane == 0) *at(p.lse) = most + log1p(exp(above > 0 ? -above : above));
}

Statistics statistics_of(const Tensor& t) { return {t.raw(), t.stride(0), t.stride(1), t.stride(2)}; }

}  // namespace

void attention(const AttentionArgs& args, Stream& stream) {
  const int64_t batch = args.q.dim(0), rows = args.q.dim(1), heads = args.q.dim(2), width = args.q.dim(3);
  if (batch == 0 || rows == 0 || heads == 0) return;
  with_float(args.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Wide<T>;
    const Forward<T> p = {heads_of<const T>(args.q),
                          heads_of<const T>(args.k),
                          heads_of<const T>(args.v),
                          heads_of<T>(args.out),
                          args.lse ? args.lse.data<S>() : nullptr,
                          sight_of(args),
                          heads,
                          args.k.dim(2),
                          static_cast<int>(width),
                          static_cast<S>(args.scale),
                          static_cast<S>(args.cap),
                          args.sinks ? args.sinks.data<T>() : nullptr};
    if constexpr (sizeof(T) == 2)
      attention_on_tensor_cores(p, batch, stream);
    else
      with_head_width("attention", width, [&](auto most) {
        constexpr int tile = kForwardTile<S, most()>;
        const size_t shared = (2 * tile * (most() + 1) + tile * (tile + 1)) * sizeof(S);
        const dim3 grid(blocks(pieces(rows, tile)), static_cast<unsigned>(heads),
                        static_cast<unsigned>(batch));
        with_generality(p.is_general(), [&](auto general) {
          launch("attention", attention_kernel<T, most(), general()>, {grid, kAttentionThreads, shared},
                 native(stream), p);
        });
      });
  });
}

void attention_merge(const AttentionMergeArgs& args, Stream& stream) {
  const int64_t batch = args.part.dim(0), rows = args.part.dim(1), heads = args.part.dim(2);
  const int64_t all = batch * rows * heads;
  if (all == 0) return;
  constexpr int kThreads = 256;
  with_float(args.part.dtype(), [&](auto type) {
    using T = decltype(type);
    const Merge<T> p = {heads_of<Wide<T>>(args.out),
                        heads_of<const T>(args.part),
                        statistics_of(args.lse),
                        statistics_of(args.part_lse),
                        rows,
                        heads,
                        all,
                        static_cast<int>(args.part.dim(3))};
    launch("attention_merge", attention_merge_kernel<T>,
           {blocks(pieces(all * kWarpSize, kThreads)), kThreads, 0}, native(stream), p);
  });
}

}  // namespace gangway::cuda
