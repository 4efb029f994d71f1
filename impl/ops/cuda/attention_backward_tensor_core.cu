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

// Writes or adds the sums times the scale. __fmul_rn keeps the compiler from merging the product with the
// addition, so that added gradients have the same bits as written ones.
template <typename T, int width>
__device__ void put_rows(const Gradient& to, int64_t b, int64_t h, int64_t first, int64_t end, int used,
                         float scale, const float (&sum)[width / 8][4]) {
  const int column = lane_of_warp() % 4 * 2;
  const int64_t row = first + first_row_of_warp() + lane_of_warp() / 4;
#pragma unroll  // registers cannot be indexed by a variable
  for (int j = 0; j < width / 8; ++j)
    for (int i = 0; i < 4; ++i) {
      const int e = 8 * j + column + i % 2;
      if (row + i / 2 * 8 < end && e < used)
        put<T>(to, b, row + i / 2 * 8, h, e, __fmul_rn(sum[j][i], scale));
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
  constexpr int columns = kColumns<width>;
  using Columns = Tile<T, columns, width>;
  const Tile<T, kBlockRows, width> q = {block_memory<T>()}, dout = {q.data + q.kElements};
  T* const buffers = dout.data + dout.kElements;
  const auto k = [&](int buffer) { return Columns{buffers + 2 * buffer * Columns::kElements}; };
  const auto v = [&](int buffer) { return Columns{buffers + (2 * buffer + 1) * Columns::kElements}; };
  // The last queries start first, because they see the most keys.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kBlockRows, h = blockIdx.y,
                b = blockIdx.z;
  const int64_t group = h / (p.heads / p.groups);
  const auto [begin, end] = p.sight.template keys_of_tile<general>(b, first, kBlockRows);
  const int column = lane_of_warp() % 4 * 2;

  float lse[2], along[2];
  Span spans[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t row = first + first_row_of_warp() + lane_of_warp() / 4 + 8 * i;
    const int64_t at = (b * p.heads + h) * p.sight.q_rows + row;
    lse[i] = row < p.sight.q_rows ? p.lse_BHS[at] * kLog2OfE : 0.0f;
    along[i] = row < p.sight.q_rows ? p.along_BHS[at] : 0.0f;
    spans[i] = p.sight.template keys_of<general>(b, row);
  }
  const auto load = [&](int64_t key, int buffer) {
    load_rows(p.k, b, group, key, p.sight.k_rows, p.width, k(buffer));
    load_rows(p.v, b, group, key, p.sight.k_rows, p.width, v(buffer));
  };
  float sum[width / 8][4] = {};
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
    float score[columns / 8][4], dweight[columns / 8][4];
    multiply_rows(q, first_row_of_warp(), k(buffer), score);
    multiply_rows(dout, first_row_of_warp(), v(buffer), dweight);
    for (int i = 0; i < 2; ++i) {
      const int seen = columns_before(spans[i].end, key, columns);
      const int unseen = general ? columns_before(spans[i].begin, key, columns) : 0;
      for (int j = 0; j < columns / 8; ++j)
        for (int c = 0; c < 2; ++c) {
          const int at = 2 * i + c, key_at = 8 * j + column + c;
          const Weight weight = weight_of<general>(p, score[j][at], lse[i]);
          const bool sees = key_at < seen && (!general || key_at >= unseen);
          dweight[j][at] = sees ? weight.value * (dweight[j][at] - along[i]) * weight.slope : 0.0f;
        }
    }
    add_weighted_rows(dweight, k(buffer), sum);
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
  const Tile<T, kBlockRows, width> k = {block_memory<T>()}, v = {k.data + k.kElements};
  unsigned char* const buffers = reinterpret_cast<unsigned char*>(v.data + v.kElements);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockRows, group = blockIdx.y, b = blockIdx.z;
  const int64_t of_group = p.heads / p.groups, last_head = (group + 1) * of_group - 1;
  const auto [begin, end] = p.sight.template queries_of_tile<general>(b, first, kBlockRows, columns);
  const int column = lane_of_warp() % 4 * 2;
  Span spans[2];
  for (int i = 0; i < 2; ++i)
    spans[i] =
        p.sight.template queries_of<general>(b, first + first_row_of_warp() + lane_of_warp() / 4 + 8 * i);

  float dk[makes_dk ? width / 8 : 1][4] = {}, dv[makes_dv ? width / 8 : 1][4] = {};
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
      if (query + columns < end)
        next.load(p, b, h, query + columns);
      else if (h < last_head)
        next.load(p, b, h + 1, begin);
      float weight[columns / 8][4], dweight[makes_dk ? columns / 8 : 1][4];
      multiply_rows(k, first_row_of_warp(), now.q, weight);
      // Before the weights, so that no slope has to be kept in registers.
      if constexpr (general && makes_dk) multiply_rows(v, first_row_of_warp(), now.dout, dweight);
      for (int i = 0; i < 2; ++i) {
        const int unseen = columns_before(spans[i].begin, query, columns),
                  seen = columns_before(spans[i].end, query, columns);
        for (int j = 0; j < columns / 8; ++j)
          for (int c = 0; c < 2; ++c) {
            const int at = 8 * j + column + c;
            float& to = weight[j][2 * i + c];
            const Weight w = weight_of<general>(p, to, now.lse[at] * kLog2OfE);
            to = at < unseen || at >= seen ? 0.0f : w.value;
            if constexpr (general && makes_dk)
              dweight[j][2 * i + c] = to * (dweight[j][2 * i + c] - now.along[at]) * w.slope;
          }
      }
      if constexpr (makes_dv) add_weighted_rows(weight, now.dout, dv);
      if constexpr (makes_dk) {
        if constexpr (!general) {
          multiply_rows(v, first_row_of_warp(), now.dout, dweight);
          for (int j = 0; j < columns / 8; ++j)
            for (int i = 0; i < 4; ++i)
              dweight[j][i] = weight[j][i] * (dweight[j][i] - now.along[8 * j + column + i % 2]);
        }
        add_weighted_rows(dweight, now.q, dk);
      }
    }
  if constexpr (makes_dk) put_rows<T, width>(p.dk, b, group, first, p.sight.k_rows, p.width, p.scale, dk);
  if constexpr (makes_dv) put_rows<T, width>(p.dv, b, group, first, p.sight.k_rows, p.width, 1.0f, dv);
}

}  // namespace

template <typename T>
void attention_backward_on_tensor_cores(const Backward<T>& p, int64_t batch, Stream& stream) {
  with_head_width("attention_backward", p.width, [&](auto width) {
    constexpr size_t rows_bytes = 2 * kBlockRows * width() * sizeof(T);
    const auto start = [&](const char* name, auto kernel, int64_t rows, int64_t heads, size_t columns_bytes) {
      if (rows == 0) return;
      const dim3 grid(blocks(pieces(rows, kBlockRows)), static_cast<unsigned>(heads),
                      static_cast<unsigned>(batch));
      launch(name, kernel, {grid, kTensorCoreThreads, rows_bytes + columns_bytes}, native(stream), p);
    };
    const auto start_dkv = [&](auto kernel) {
      start("attention_dkv", kernel, p.sight.k_rows, p.groups, 2 * Queries<T, width()>::kBytes);
    };
    with_generality(p.is_general(), [&](auto general) {
      start("attention_dq", attention_dq_tensor_core_kernel<T, width(), general()>, p.sight.q_rows, p.heads,
            4 * kColumns<width()> * width() * sizeof(T));
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
