#include "ops/cuda/tensor_core.h"

// The backward in bf16 and f16. As in attention_backward.cu, one kernel makes dq and another dk and dv,
// without atomics. Weights and their gradients stay in registers. A tile of columns is loaded while the tile
// before it is computed.

namespace gangway::cuda {
namespace {

// The columns of a tile. A warp computes equally many products for every width, and two such tiles fit into
// 97 KiB.
template <int width>
constexpr int kColumns = 4096 / width;
// The sets of 16 queries of a warp that makes dq, as many as the registers allow.
template <int width>
constexpr int kSets = width <= 128 ? 2 : 1;

// Writes or adds the sums times the scale. __fmul_rn keeps the compiler from merging the product with the
// addition, so that added gradients have the same bits as written ones.
template <typename T, int width, int sets>
__device__ void put_rows(const Gradient& to, int64_t b, int64_t h, int64_t first, int64_t end, int used,
                         float scale, const float (&sum)[sets][width / 8][4]) {
  const int column = lane_of_warp() % 4 * 2;
  const int64_t row = first + first_row_of_warp<sets>() + lane_of_warp() / 4;
#pragma unroll  // registers cannot be indexed by a variable
  for (int m = 0; m < sets; ++m)
#pragma unroll
    for (int j = 0; j < width / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int e = 8 * j + column + i % 2;
        const int64_t at = row + 16 * m + i / 2 * 8;
        if (at < end && e < used) put<T>(to, b, at, h, e, __fmul_rn(sum[m][j][i], scale));
      }
}

// The keys or queries that the lane's row 8 i sees are spans[8 i], in shared memory. Sets the numbers of a
// tile from `first` on to 0 where the row does not see its columns. The bounds never decrease from row to
// row.
template <int sets, int count>
__device__ void mask(const Span* spans, int64_t first, float (&numbers)[sets][count][4]) {
  constexpr int rows = 2 * sets, columns = count * 8;
  if (spans[8 * (rows - 1)].begin <= first && spans[0].end >= first + columns) return;
  const int column = lane_of_warp() % 4 * 2;
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    const int unseen = columns_before(spans[8 * i].begin, first, columns) - column,
              seen = columns_before(spans[8 * i].end, first, columns) - column;
#pragma unroll
    for (int j = 0; j < count; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (8 * j + c < unseen || 8 * j + c >= seen) numbers[i / 2][j][i % 2 * 2 + c] = 0.0f;
  }
}

// A weight, and the derivative of its score by the scaled product.
struct Weight {
  float value, slope;
};
template <bool general, typename T>
__device__ Weight weight_of(const Backward<T>& p, float product, float lse_times_log2_of_e) {
  if constexpr (general)
    if (p.cap > 0) {
      const float part = tanh_approximate(product * (p.scale / p.cap));
      return {exp2_approximate(part * (p.cap * kLog2OfE) - lse_times_log2_of_e), 1.0f - part * part};
    }
  return {exp2_approximate(product * (p.scale * kLog2OfE) - lse_times_log2_of_e), 1.0f};
}

template <typename T, int width, bool general>
__global__ void __launch_bounds__(kTensorCoreThreads) attention_dq_tensor_core_kernel(Backward<T> p) {
  constexpr int columns = kColumns<width>, sets = kSets<width>, count = 2 * sets, tile = kBlockRows<sets>;
  using Columns = Tile<T, columns, width>;
  const Tile<T, tile, width> q = {block_memory<T>()}, dout = {q.data + q.kElements};
  T* const buffers = dout.data + dout.kElements;
  const auto k = [&](int buffer) { return Columns{buffers + 2 * buffer * Columns::kElements}; };
  const auto v = [&](int buffer) { return Columns{buffers + (2 * buffer + 1) * Columns::kElements}; };
  Span* const spans = reinterpret_cast<Span*>(buffers + 4 * Columns::kElements);
  // The last queries start first, because they see the most keys.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * tile, h = blockIdx.y,
                b = blockIdx.z;
  const int64_t group = h / (p.heads / p.groups);
  const auto [begin, end] = p.sight.template keys_of_tile<general>(b, first, tile);
  const unsigned of_lane = first_row_of_warp<sets>() + threadIdx.x % kWarpSize / 4;

  if (const int i = static_cast<int>(threadIdx.x); i < tile)
    spans[i] = p.sight.template keys_of<general>(b, first + i);
  float lse[count], along[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int64_t row = first + of_lane + 8 * i;
    const int64_t at = (b * p.heads + h) * p.sight.q_rows + row;
    lse[i] = row < p.sight.q_rows ? p.lse_BHS[at] * kLog2OfE : 0.0f;
    along[i] = row < p.sight.q_rows ? p.along_BHS[at] : 0.0f;
  }
  const auto load = [&](int64_t key, int buffer) {
    load_rows(p.k, b, group, key, p.sight.k_rows, p.width, k(buffer));
    load_rows(p.v, b, group, key, p.sight.k_rows, p.width, v(buffer));
  };
  float sum[sets][width / 8][4] = {};
  if (end > begin) {
    load_rows(p.q, b, h, first, p.sight.q_rows, p.width, q);
    load_rows(p.dout, b, h, first, p.sight.q_rows, p.width, dout);
    load(begin, 0);
  }
  int buffer = 0;
  for (int64_t key = begin; key < end; key += columns, buffer ^= 1) {
    cp_async_wait();
    __syncthreads();  // this tile is loaded, and no thread still reads the previous one
    if (key + columns < end) load(key + columns, buffer ^ 1);
    float score[sets][columns / 8][4], dweight[sets][columns / 8][4];
    multiply_rows(q, first_row_of_warp<sets>(), k(buffer), score);
    multiply_rows(dout, first_row_of_warp<sets>(), v(buffer), dweight);
#pragma unroll
    for (int m = 0; m < sets; ++m)
#pragma unroll
      for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Weight weight = weight_of<general>(p, score[m][j][i], lse[2 * m + i / 2]);
          dweight[m][j][i] = weight.value * (dweight[m][j][i] - along[2 * m + i / 2]) * weight.slope;
        }
    mask(spans + hidden(of_lane), key, dweight);
    uint32_t packed[sets][columns / 16][4];
    pack_weights<T>(dweight, packed);
    add_weighted_rows(packed, k(buffer), sum);
  }
  put_rows<T, width>(p.dq, b, h, first, p.sight.q_rows, p.width, p.scale, sum);
}

// A tile of queries with their dout, lse and row sums.
template <typename T, int width>
struct Queries {
  static constexpr int kCount = kColumns<width>;
  static constexpr size_t kBytes = 2 * kCount * (width * sizeof(T) + sizeof(float));
  Tile<T, kCount, width> q, dout;
  float *lse, *along;
  __device__ explicit Queries(unsigned char* memory)
      : q{reinterpret_cast<T*>(memory)},
        dout{q.data + q.kElements},
        lse(reinterpret_cast<float*>(dout.data + dout.kElements)),
        along(lse + kCount) {}

  __device__ void load(const Backward<T>& p, int64_t b, int64_t h, int64_t first) const {
    load_rows(p.q, b, h, first, p.sight.q_rows, p.width, q);
    load_rows(p.dout, b, h, first, p.sight.q_rows, p.width, dout);
    const int i = static_cast<int>(threadIdx.x) % kCount;
    if (threadIdx.x >= 2 * kCount) return;
    const bool of_lse = threadIdx.x < kCount, exists = first + i < p.sight.q_rows;
    const float* const from = of_lse ? p.lse_BHS : p.along_BHS;
    cp_async<4>((of_lse ? lse : along) + i,
                from + (exists ? (b * p.heads + h) * p.sight.q_rows + first + i : 0), exists);
  }
};

// Makes dk and dv, or only one of them if the registers do not suffice for both.
template <typename T, int width, bool general, bool makes_dk, bool makes_dv>
__global__ void __launch_bounds__(kTensorCoreThreads) attention_dkv_tensor_core_kernel(Backward<T> p) {
  using Columns = Queries<T, width>;
  constexpr int columns = Columns::kCount;
  constexpr int tile = kBlockRows<1>;
  const Tile<T, tile, width> k = {block_memory<T>()}, v = {k.data + k.kElements};
  unsigned char* const buffers = reinterpret_cast<unsigned char*>(v.data + v.kElements);
  Span* const spans = reinterpret_cast<Span*>(buffers + 2 * Columns::kBytes);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tile, group = blockIdx.y, b = blockIdx.z;
  const int64_t of_group = p.heads / p.groups, last_head = (group + 1) * of_group - 1;
  const auto [begin, end] = p.sight.template queries_of_tile<general>(b, first, tile, columns);
  const int column = lane_of_warp() % 4 * 2;
  const unsigned of_warp = first_row_of_warp<1>();
  if (const int i = static_cast<int>(threadIdx.x); i < tile)
    spans[i] = p.sight.template queries_of<general>(b, first + i);

  float dk[1][makes_dk ? width / 8 : 1][4] = {}, dv[1][makes_dv ? width / 8 : 1][4] = {};
  if (begin < end) {
    load_rows(p.k, b, group, first, p.sight.k_rows, p.width, k);
    if constexpr (makes_dk) load_rows(p.v, b, group, first, p.sight.k_rows, p.width, v);
    Columns(buffers).load(p, b, group * of_group, begin);
  }
  int buffer = 0;
  for (int64_t h = group * of_group; h <= last_head; ++h)
    for (int64_t query = begin; query < end; query += columns, buffer ^= 1) {
      const Columns now(buffers + buffer * Columns::kBytes), next(buffers + (buffer ^ 1) * Columns::kBytes);
      cp_async_wait();
      __syncthreads();  // this tile is loaded, and no thread still reads the previous one
      if (const bool more = query + columns < end; more || h < last_head)
        next.load(p, b, more ? h : h + 1, more ? query + columns : begin);
      float weight[1][columns / 8][4], dweight[1][makes_dk ? columns / 8 : 1][4];
      multiply_rows(k, of_warp, now.q, weight);
      // Before the weights, so that no slope has to be kept in registers.
      if constexpr (general && makes_dk) multiply_rows(v, of_warp, now.dout, dweight);
#pragma unroll
      for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 8 * j + column + i % 2;
          const Weight w = weight_of<general>(p, weight[0][j][i], now.lse[at] * kLog2OfE);
          weight[0][j][i] = w.value;
          if constexpr (general && makes_dk)
            dweight[0][j][i] = w.value * (dweight[0][j][i] - now.along[at]) * w.slope;
        }
      const Span* const own = spans + hidden(of_warp + threadIdx.x % kWarpSize / 4);
      mask(own, query, weight);
      uint32_t packed[1][columns / 16][4];
      if constexpr (makes_dv) {
        pack_weights<T>(weight, packed);
        add_weighted_rows(packed, now.dout, dv);
      }
      if constexpr (makes_dk) {
        if constexpr (general) {
          mask(own, query, dweight);
        } else {
          multiply_rows(v, of_warp, now.dout, dweight);
#pragma unroll
          for (int j = 0; j < columns / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              dweight[0][j][i] = weight[0][j][i] * (dweight[0][j][i] - now.along[8 * j + column + i % 2]);
        }
        pack_weights<T>(dweight, packed);
        add_weighted_rows(packed, now.q, dk);
      }
    }
  if constexpr (makes_dk) put_rows<T, width>(p.dk, b, group, first, p.sight.k_rows, p.width, p.scale, dk);
  if constexpr (makes_dv) put_rows<T, width>(p.dv, b, group, first, p.sight.k_rows, p.width, 1.0f, dv);
}

}  // namespace

template <typename T>
void attention_backward_on_tensor_cores(const Backward<T>& p, int64_t batch, Stream& stream) {
  with_head_width("attention_backward", p.width, [&](auto width) {
    const auto start = [&](const char* name, auto kernel, int64_t rows, int64_t heads, int tile,
                           size_t columns_bytes) {
      if (rows == 0) return;
      const dim3 grid(blocks(pieces(rows, tile)), static_cast<unsigned>(heads), static_cast<unsigned>(batch));
      const size_t row_bytes = 2 * width() * sizeof(T) + sizeof(Span);
      launch(name, kernel, {grid, kTensorCoreThreads, static_cast<size_t>(tile) * row_bytes + columns_bytes},
             native(stream), p);
    };
    const auto start_dkv = [&](auto kernel) {
      start("attention_dkv", kernel, p.sight.k_rows, p.groups, kBlockRows<1>,
            2 * Queries<T, width()>::kBytes);
    };
    with_generality(p.is_general(), [&](auto general) {
      start("attention_dq", attention_dq_tensor_core_kernel<T, width(), general()>, p.sight.q_rows, p.heads,
            kBlockRows<kSets<width()>>, 4 * kColumns<width()> * width() * sizeof(T));
      if constexpr (width() <= 128) {
        start_dkv(attention_dkv_tensor_core_kernel<T, width(), general(), true, true>);
      } else {
        start_dkv(attention_dkv_tensor_core_kernel<T, width(), general(), true, false>);
        start_dkv(attention_dkv_tensor_core_kernel<T, width(), general(), false, true>);
      }
    });
  });
}
template void attention_backward_on_tensor_cores(const Backward<Bf16>&, int64_t, Stream&);
template void attention_backward_on_tensor_cores(const Backward<Half>&, int64_t, Stream&);

}  // namespace gangway::cuda
