#include "ops/cuda/reduce.h"
#include "ops/cuda/tensor_core.h"

// The forward in bf16 and f16 (Dao, "FlashAttention-2", 2023). A warp has 16 queries, whose scores and
// weights stay in registers. The values of a tile are loaded while its scores are computed, and the next keys
// while its values are added.

namespace gangway::cuda {
namespace {

constexpr float kLogOf2 = 0.693147181f;
template <int width>
constexpr int kKeys = width <= 128 ? 64 : 32;  // keys of a tile, as many as the registers allow

// A lane's part of the sums over the keys so far, for its two rows i = 0 and 1 (tensor_core.h).
template <int width>
struct Rows {
  float sum[width / 8][4] = {};
  float most[2] = {-INFINITY, -INFINITY};  // the highest score times log2(e)
  float total[2] = {};                     // the sum of the weights in this lane's columns
};

// Turns products into scores times log2(e).
template <bool general, typename T, int count>
__device__ void scale_products(const Forward<T>& p, float (&score)[count][4]) {
  if constexpr (general)
    if (p.cap > 0) {
      for (int j = 0; j < count; ++j)
        for (int i = 0; i < 4; ++i)
          score[j][i] = p.cap * kLog2OfE * tanh_approximate(score[j][i] * (p.scale / p.cap));
      return;
    }
  for (int j = 0; j < count; ++j)
    for (int i = 0; i < 4; ++i) score[j][i] *= p.scale * kLog2OfE;
}

// Turns scores into weights relative to the highest score so far. Row i sees the keys [unseen[i], seen[i]) of
// the tile. Neither bound of row 1 is below that of row 0.
template <bool general, int width, int keys = kKeys<width>>
__device__ void weigh(const int (&unseen)[2], const int (&seen)[2], float (&score)[keys / 8][4],
                      Rows<width>& rows) {
  const int column = lane_of_warp() % 4 * 2;
  if (seen[0] < keys || (general && unseen[1] > 0))
    for (int j = 0; j < keys / 8; ++j)
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + column + i % 2;
        if (at >= seen[i / 2] || (general && at < unseen[i / 2])) score[j][i] = -INFINITY;
      }
  for (int i = 0; i < 2; ++i) {
    float highest = rows.most[i];
    for (int j = 0; j < keys / 8; ++j)
      for (int c = 0; c < 2; ++c) highest = fmaxf(highest, score[j][2 * i + c]);
    highest = quad_fold(highest, Largest());
    // A row that has seen no key yet gets weights 0. exp(-infinity + infinity) would be NaN.
    const float shift = highest == -INFINITY ? 0.0f : highest;
    const float kept = exp2_approximate(rows.most[i] - shift);
    rows.most[i] = highest;
    rows.total[i] *= kept;
    for (int j = 0; j < keys / 8; ++j)
      for (int c = 0; c < 2; ++c) {
        float& s = score[j][2 * i + c];
        s = exp2_approximate(s - shift);
        rows.total[i] += s;
      }
    for (int j = 0; j < width / 8; ++j)
      for (int c = 0; c < 2; ++c) rows.sum[j][2 * i + c] *= kept;
  }
}

template <typename T, int width>
__device__ void put_row(const Forward<T>& p, int64_t b, int64_t h, int64_t row, int i,
                        const Rows<width>& rows) {
  const int column = lane_of_warp() % 4 * 2;
  const float total = quad_fold(rows.total[i], Add());
  if (row >= p.sight.q_rows) return;
  const bool blind = total == 0.0f;  // the row sees no key
  const float factor = 1.0f / total;
  T* const out = p.out.row(b, row, h);
#pragma unroll  // registers cannot be indexed by a variable
  for (int j = 0; j < width / 8; ++j) {
    const float first = blind ? 0.0f : rows.sum[j][2 * i] * factor,
                second = blind ? 0.0f : rows.sum[j][2 * i + 1] * factor;
    const int e = 8 * j + column;
    if (p.out.packs) {
      if (e < p.width) *reinterpret_cast<uint32_t*>(out + e) = pack_pair<T>(first, second);
    } else {
      if (e < p.width) out[e] = narrow<T>(first);
      if (e + 1 < p.width) out[e + 1] = narrow<T>(second);
    }
  }
  if (p.lse_BHS != nullptr && column == 0)
    p.lse_BHS[(b * p.heads + h) * p.sight.q_rows + row] =
        blind ? -INFINITY : rows.most[i] * kLogOf2 + logf(total);
}

template <typename T, int width, bool general>
__global__ void __launch_bounds__(kTensorCoreThreads, width <= 64 ? 3 : 2)
    attention_tensor_core_kernel(Forward<T> p) {
  constexpr int keys = kKeys<width>;
  const Tile<T, kBlockRows, width> q = {block_memory<T>()};
  const Tile<T, keys, width> k = {q.data + q.kElements}, v = {k.data + k.kElements};
  // The last queries start first, because they see the most keys.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kBlockRows, h = blockIdx.y,
                b = blockIdx.z;
  const int64_t group = h / (p.heads / p.groups);
  const int64_t row = first + first_row_of_warp() + lane_of_warp() / 4;
  const Span spans[2] = {p.sight.template keys_of<general>(b, row),
                         p.sight.template keys_of<general>(b, row + 8)};
  const auto [begin, end] = p.sight.template keys_of_tile<general>(b, first, kBlockRows);

  Rows<width> rows;
  if constexpr (general)
    if (p.sinks_H != nullptr) {
      const float sink = widen(p.sinks_H[h]);
      for (int i = 0; i < 2; ++i) {
        rows.most[i] = sink * kLog2OfE;
        rows.total[i] = sink != -INFINITY && lane_of_warp() % 4 == 0 ? 1.0f : 0.0f;  // the sink's weight
      }
    }
  if (end > begin) {
    load_rows(p.q, b, h, first, p.sight.q_rows, p.width, q);
    load_rows(p.k, b, group, begin, p.sight.k_rows, p.width, k);
  }
  for (int64_t key = begin; key < end; key += keys) {
    cp_async_wait();
    __syncthreads();  // keys are loaded, and nobody reads values any more
    load_rows(p.v, b, group, key, p.sight.k_rows, p.width, v);
    float score[keys / 8][4];
    multiply_rows(q, first_row_of_warp(), k, score);
    scale_products<general>(p, score);
    int unseen[2] = {};
    if constexpr (general)
      for (int i = 0; i < 2; ++i) unseen[i] = columns_before(spans[i].begin, key, keys);
    const int seen[2] = {columns_before(spans[0].end, key, keys), columns_before(spans[1].end, key, keys)};
    weigh<general>(unseen, seen, score, rows);
    cp_async_wait();
    __syncthreads();  // values are loaded, and nobody reads keys any more
    if (key + keys < end) load_rows(p.k, b, group, key + keys, p.sight.k_rows, p.width, k);
    add_weighted_rows(score, v, rows.sum);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) put_row(p, b, h, row + 8 * i, i, rows);
}

}  // namespace

template <typename T>
void attention_on_tensor_cores(const Forward<T>& p, int64_t batch, Stream& stream) {
  with_head_width("attention", p.width, [&](auto width) {
    constexpr size_t shared = (kBlockRows + 2 * kKeys<width()>)*width() * sizeof(T);
    const dim3 grid(blocks(pieces(p.sight.q_rows, kBlockRows)), static_cast<unsigned>(p.heads),
                    static_cast<unsigned>(batch));
    with_generality(p.is_general(), [&](auto general) {
      launch("attention", attention_tensor_core_kernel<T, width(), general()>,
             {grid, kTensorCoreThreads, shared}, native(stream), p);
    });
  });
}
template void attention_on_tensor_cores(const Forward<Bf16>&, int64_t, Stream&);
template void attention_on_tensor_cores(const Forward<Half>&, int64_t, Stream&);

}  // namespace gangway::cuda
