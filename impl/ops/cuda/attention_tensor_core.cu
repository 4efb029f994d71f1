#include "ops/cuda/reduce.h"
#include "ops/cuda/tensor_core.h"

// The forward in bf16 and f16 (Dao, "FlashAttention-2", 2023). A warp has 16 or 32 queries, whose scores and
// weights stay in registers. The values of a tile are loaded while its scores are computed, and the next keys
// while its values are added.

namespace gangway::cuda {
namespace {

constexpr float kLogOf2 = 0.693147181f;
// The keys of a tile and the sets of 16 queries of a warp, as many as the registers allow.
template <int width>
constexpr int kKeys = width <= 128 ? 64 : 32;
template <int width>
constexpr int kSets = width <= 128 ? 2 : 1;
template <int width>
constexpr int kRows = 2 * kSets<width>;  // of a lane: lane / 4 + 8 i of the warp's queries

// A lane's part of the sums over the keys so far.
template <int width>
struct Rows {
  float sum[kSets<width>][width / 8][4];
  float most[kRows<width>];   // the highest score times log2(e)
  float total[kRows<width>];  // the sum of the weights in this lane's columns
};

// What turns products into scores times log2(e). The host computes these, so that they take no registers.
struct Scores {
  float factor;        // in calls that are not general: product * factor, factor > 0
  float inside, most;  // in general calls: most * tanh(product * inside), or product * inside if most is 0
};

template <int sets, int count>
__device__ void scale_products(const Scores& by, float (&score)[sets][count][4]) {
  const auto all = [&](auto&& change) {
#pragma unroll
    for (int m = 0; m < sets; ++m)
#pragma unroll
      for (int j = 0; j < count; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[m][j][i] = change(score[m][j][i] * by.inside);
  };
  if (by.most > 0)
    all([&](float s) { return by.most * tanh_approximate(s); });
  else
    all([](float s) { return s; });
}

// Takes the keys out of the tile from `key` on that a row does not see. spans[8 i] are the keys of row i. They
// lie in shared memory, because few tiles have such keys and registers are short.
template <bool general, int width, int keys = kKeys<width>>
__device__ void mask(const Span* spans, int64_t key, float (&score)[kSets<width>][keys / 8][4]) {
  const int column = lane_of_warp() % 4 * 2;
#pragma unroll
  for (int i = 0; i < kRows<width>; ++i) {
    const Span span = spans[8 * i];
    const int seen = columns_before(span.end, key, keys) - column;
    const int unseen = general ? columns_before(span.begin, key, keys) - column : -keys;
#pragma unroll
    for (int j = 0; j < keys / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int at = 8 * j + c;
        if (at >= seen || at < unseen) score[i / 2][j][i % 2 * 2 + c] = -INFINITY;
      }
  }
}

// Turns scores, which are still to be multiplied by `factor` > 0, into weights relative to the highest score
// so far. They are packed one by one, because registers are short.
template <typename T, int width, int keys = kKeys<width>>
__device__ void weigh(float factor, float (&score)[kSets<width>][keys / 8][4], Rows<width>& rows,
                      uint32_t (&weights)[kSets<width>][keys / 16][4]) {
#pragma unroll
  for (int i = 0; i < kRows<width>; ++i) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < keys / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) highest = fmaxf(highest, score[i / 2][j][i % 2 * 2 + c]);
    highest = fmaxf(rows.most[i], quad_fold(highest, Largest()) * factor);
    // A row that has seen no key yet gets weights 0. exp(-infinity + infinity) would be NaN.
    const float shift = highest == -INFINITY ? 0.0f : highest;
    const float kept = exp2_approximate(rows.most[i] - shift);
    rows.most[i] = highest;
    rows.total[i] *= kept;
#pragma unroll
    for (int j = 0; j < keys / 8; ++j) {
      const float* const pair = score[i / 2][j] + i % 2 * 2;
      const float left = exp2_approximate(pair[0] * factor - shift),
                  right = exp2_approximate(pair[1] * factor - shift);
      rows.total[i] += left;
      rows.total[i] += right;
      weights[i / 2][j / 2][j % 2 * 2 + i % 2] = pack_pair<T>(left, right);
    }
#pragma unroll
    for (int j = 0; j < width / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) rows.sum[i / 2][j][i % 2 * 2 + c] *= kept;
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
    const float first = blind ? 0.0f : rows.sum[i / 2][j][i % 2 * 2] * factor,
                second = blind ? 0.0f : rows.sum[i / 2][j][i % 2 * 2 + 1] * factor;
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

// Two blocks at a time, which is what the registers of a warp with 32 queries allow.
template <typename T, int width, bool general>
__global__ void __launch_bounds__(kTensorCoreThreads, 2)
    attention_tensor_core_kernel(Forward<T> p, Scores scores) {
  constexpr int keys = kKeys<width>, sets = kSets<width>, count = kRows<width>, tile = kBlockRows<sets>;
  const Tile<T, tile, width> q = {block_memory<T>()};
  const Tile<T, keys, width> k = {q.data + q.kElements}, v = {k.data + k.kElements};
  Span* const spans = reinterpret_cast<Span*>(v.data + v.kElements);
  // The last queries start first, because they see the most keys.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * tile, h = blockIdx.y,
                b = blockIdx.z;
  const int64_t group = h / (p.heads / p.groups);
  const unsigned of_lane = first_row_of_warp<sets>() + threadIdx.x % kWarpSize / 4;
  const int64_t all_to = p.sight.template keys_of<general>(b, first + of_lane).end;
  if (const int i = static_cast<int>(threadIdx.x); i < tile)
    spans[i] = p.sight.template keys_of<general>(b, first + i);
  const auto [begin, end] = p.sight.template keys_of_tile<general>(b, first, tile);

  Rows<width> rows = {};
  float sink = -INFINITY;
  if constexpr (general)
    if (p.sinks_H != nullptr) sink = widen(p.sinks_H[h]);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    rows.most[i] = sink * kLog2OfE;
    rows.total[i] = sink != -INFINITY && lane_of_warp() % 4 == 0 ? 1.0f : 0.0f;  // the sink's weight
  }
  if (end > begin) {
    load_rows(p.q, b, h, first, p.sight.q_rows, p.width, q);
    load_rows(p.k, b, group, begin, p.sight.k_rows, p.width, k);
  }
  for (int64_t key = begin; key < end; key += keys) {
    cp_async_wait();
    __syncthreads();  // keys are loaded, and nobody reads values any more
    load_rows(p.v, b, group, key, p.sight.k_rows, p.width, v);
    float score[sets][keys / 8][4];
    multiply_rows(q, first_row_of_warp<sets>(), k, score);
    if constexpr (general) scale_products(scores, score);
    // The bounds never decrease from row to row.
    const Span* const own = spans + hidden(of_lane);
    if (key + keys > (general ? own->end : all_to) || (general && key < own[8 * (count - 1)].begin))
      mask<general, width>(own, key, score);
    uint32_t weights[sets][keys / 16][4];
    weigh<T>(general ? 1.0f : scores.factor, score, rows, weights);
    cp_async_wait();
    __syncthreads();  // values are loaded, and nobody reads keys any more
    if (key + keys < end) load_rows(p.k, b, group, key + keys, p.sight.k_rows, p.width, k);
    add_weighted_rows(weights, v, rows.sum);
  }
#pragma unroll
  for (int i = 0; i < count; ++i) put_row(p, b, h, first + of_lane + 8 * i, i, rows);
}

}  // namespace

template <typename T>
void attention_on_tensor_cores(const Forward<T>& p, int64_t batch, Stream& stream) {
  with_head_width("attention", p.width, [&](auto width) {
    constexpr int tile = kBlockRows<kSets<width()>>;
    constexpr size_t shared = (tile + 2 * kKeys<width()>)*width() * sizeof(T) + tile * sizeof(Span);
    const dim3 grid(blocks(pieces(p.sight.q_rows, tile)), static_cast<unsigned>(p.heads),
                    static_cast<unsigned>(batch));
    const bool caps = p.cap > 0;
    const Scores scores = {p.scale * kLog2OfE, caps ? p.scale / p.cap : p.scale * kLog2OfE,
                           caps ? p.cap * kLog2OfE : 0.0f};
    // The kernel for other calls finds the highest score before it scales the scores.
    with_generality(p.is_general() || !(p.scale > 0), [&](auto general) {
      launch("attention", attention_tensor_core_kernel<T, width(), general()>,
             {grid, kTensorCoreThreads, shared}, native(stream), p, scores);
    });
  });
}
template void attention_on_tensor_cores(const Forward<Bf16>&, int64_t, Stream&);
template void attention_on_tensor_cores(const Forward<Half>&, int64_t, Stream&);

}  // namespace gangway::cuda
