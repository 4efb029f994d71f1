#include "ops/cpu/kernels/product_kernels.h"

#include "ops/cpu/simd.h"

// M, N, K: the rows and columns of the result, and the depth. Panels: a_KR has strips [k][kRows], b_KC has
// strips [k][kColumns].

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

// A tile's registers: kRows x 2 vectors of accumulators, 2 vectors of b and a broadcast of a.
#if defined(__AVX512F__)
constexpr int kRows = 12;
#else
constexpr int kRows = 6;
#endif
static_assert(kBlockM % kRows == 0);

template <typename S>
constexpr int kLanesOf = kBytes / static_cast<int>(sizeof(S));
template <typename S>
constexpr int kColumns = 2 * kLanesOf<S>;

// Returns x in every lane. Subtracting zero costs no instruction. Adding zero would, since it turns -0 into
// +0.
GW_SIMD F32 broadcast(float x) { return x - F32{}; }
GW_SIMD F64 broadcast(double x) { return x - F64{}; }

GW_SIMD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// strip[k][i] = source[i * row + k * column] for i < count, with zeros up to `width`.
template <typename S, typename T>
void pack_strip(const T* source, int64_t row, int64_t column, int64_t count, int64_t depth, int64_t width,
                S* strip) {
  for (int64_t i = count; i < width; ++i)
    for (int64_t k = 0; k < depth; ++k) strip[k * width + i] = 0;
  if (row == 1) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < count; ++i)
        strip[k * width + i] = static_cast<S>(to_scalar(source[k * column + i]));
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < depth; ++k)
      strip[k * width + i] = static_cast<S>(to_scalar(source[i * row + k * column]));
}

// Packs whole strips of W elements that are adjacent in the source, a few k at a time, so that the source is
// read in long runs.
template <int W, typename S, typename T>
void pack_side_by_side(const T* source, int64_t column, int64_t strips, int64_t depth, S* panel) {
  constexpr int64_t run = 8;
  for (int64_t k0 = 0; k0 < depth; k0 += run) {
    const int64_t k1 = least(depth, k0 + run);
    for (int64_t x = 0; x < strips; ++x) {
      for (int64_t k = k0; k < k1; ++k) {
        const T* from = source + k * column + x * W;
        S* to = panel + (x * depth + k) * W;
        if constexpr (W % kLanesOf<S> == 0) {
          for (int i = 0; i < W; i += kLanesOf<S>) store(to + i, load(from + i));
        } else if constexpr (sizeof(S) == sizeof(T)) {
          __builtin_memcpy(to, from, W * sizeof(S));
        } else {
          for (int i = 0; i < W; ++i) to[i] = static_cast<S>(to_scalar(from[i]));
        }
      }
    }
  }
}

// Packs a whole strip of kRows rows whose elements are adjacent along k, by transposing squares. A store may
// reach past the rows of its k, where a later store overwrites it. The last one reaches past the strip by
// less than a vector.
template <typename S, typename T>
void pack_rows(const T* source, int64_t row, int64_t depth, S* strip) {
  constexpr int lanes = kLanesOf<S>;
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    for (int r0 = (kRows - 1) / lanes * lanes; r0 >= 0; r0 -= lanes) {
      Vec<S> square[lanes];
      for (int r = 0; r < lanes; ++r)
        square[r] = r0 + r < kRows ? load(source + (r0 + r) * row + k) : Vec<S>{};
      transpose(square);
      for (int r = 0; r < lanes; ++r) store(strip + (k + r) * kRows + r0, square[r]);
    }
  }
  pack_strip(source + k, row, 1, kRows, depth - k, kRows, strip + k * kRows);
}

template <typename S, typename T>
void pack_typed(const T* source, int64_t row, int64_t column, int64_t count, int64_t depth, int64_t width,
                S* panel) {
  int64_t i = 0;
  if (row == 1) {
    i = count / width * width;
    if (width == kRows) {
      pack_side_by_side<kRows>(source, column, i / width, depth, panel);
    } else {
      pack_side_by_side<kColumns<S>>(source, column, i / width, depth, panel);
    }
  } else if (column == 1 && width == kRows) {
    for (; i + kRows <= count; i += kRows) pack_rows(source + i * row, row, depth, panel + i * depth);
  }
  for (; i < count; i += width)
    pack_strip(source + i * row, row, column, least(width, count - i), depth, width, panel + i * depth);
}

template <typename S>
void pack(DType dtype, const void* source, int64_t offset, int64_t row, int64_t column, int64_t count,
          int64_t depth, int64_t width, S* panel) {
  if constexpr (sizeof(S) == 8) {
    pack_typed(static_cast<const double*>(source) + offset, row, column, count, depth, width, panel);
  } else if (dtype == DType::bf16) {
    pack_typed(static_cast<const bf16_t*>(source) + offset, row, column, count, depth, width, panel);
  } else if (dtype == DType::f16) {
    pack_typed(static_cast<const f16_t*>(source) + offset, row, column, count, depth, width, panel);
  } else {
    pack_typed(static_cast<const float*>(source) + offset, row, column, count, depth, width, panel);
  }
}

// tile[r][0 .. kColumns) = sum over k of a_KR[k][r] * b_KC[k][..]. The tile's rows are `step` apart. With
// `add`, the sum is added to the tile.
template <typename S>
void tile_product(int64_t depth, const S* a_KR, const S* b_KC, S* tile, int64_t step, bool add) {
  constexpr int lanes = kLanesOf<S>;
  Vec<S> acc[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = Vec<S>{};
  for (int64_t k = 0; k < depth; ++k) {
    const Vec<S> b0 = load(b_KC), b1 = load(b_KC + lanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Vec<S> a = broadcast(a_KR[r]);
      acc[r][0] = fma(a, b0, acc[r][0]);
      acc[r][1] = fma(a, b1, acc[r][1]);
    }
    a_KR += kRows;
    b_KC += 2 * lanes;
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    S* out = tile + r * step;
    if (add) {
      acc[r][0] += load(out);
      acc[r][1] += load(out + lanes);
    }
    store(out, acc[r][0]);
    store(out + lanes, acc[r][1]);
  }
}

// Computes a block of the result: whole tiles in place, and those at the border through `edge`.
template <typename S>
void block_product(int64_t m, int64_t n, int64_t depth, const S* a_KR, const S* b_KC, S* c_MN, int64_t c_row,
                   bool add, S* edge) {
  for (int64_t j = 0; j < n; j += kColumns<S>) {
    for (int64_t i = 0; i < m; i += kRows) {
      S* c = c_MN + i * c_row + j;
      const int64_t rows = least(kRows, m - i), columns = least(kColumns<S>, n - j);
      if (rows == kRows && columns == kColumns<S>) {
        tile_product(depth, a_KR + i * depth, b_KC + j * depth, c, c_row, add);
        continue;
      }
      tile_product(depth, a_KR + i * depth, b_KC + j * depth, edge, kColumns<S>, false);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t x = 0; x < columns; ++x)
          c[r * c_row + x] = (add ? c[r * c_row + x] : S{0}) + edge[r * kColumns<S> + x];
    }
  }
}

template <typename S>
GW_SIMD S bias_of(const Product& p, int64_t j) {
  if constexpr (sizeof(S) == 8) return static_cast<const double*>(p.bias)[j];
  if (p.bias_dtype == DType::bf16) return to_scalar(static_cast<const bf16_t*>(p.bias)[j]);
  if (p.bias_dtype == DType::f16) return to_scalar(static_cast<const f16_t*>(p.bias)[j]);
  return static_cast<const float*>(p.bias)[j];
}

template <typename S>
void add_bias(const Product& p, int64_t first_column, int64_t m, int64_t n, S* c_MN, int64_t c_row) {
  for (int64_t j = 0; j < n; ++j) {
    const S bias = bias_of<S>(p, first_column + j);
    for (int64_t i = 0; i < m; ++i) c_MN[i * c_row + j] += bias;
  }
}

template <typename S>
void zero_block(int64_t m, int64_t n, S* c_MN, int64_t c_row) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c_MN[i * c_row + j] = 0;
}

// Writes f32 results to 16-bit memory. With `accumulate`, adds what is there.
template <typename T>
void narrow_block(const Product& p, const float* from_MN, int64_t m, int64_t n, T* c_MN) {
  for (int64_t i = 0; i < m; ++i) {
    const float* from = from_MN + i * kBlockN;
    T* to = c_MN + i * p.c_row;
    for_lanes<float>(
        n, [&](int64_t j, auto part) __attribute__((always_inline)) {
          F32 v = load(from + j, part);
          if (p.accumulate) v += load(to + j, part);
          store(to + j, v, part);
        });
  }
}

template <typename S>
void multiply(const Product& p) {
  const bool is_buffered = sizeof(S) == 4 && p.c_dtype != DType::f32;
  S* a_panel = static_cast<S*>(p.panels);
  S* b_panel = a_panel + kBlockM * kBlockK + kLanesOf<S>;  // pack_rows writes past the panel's end
  S* edge = b_panel + kBlockN * kBlockK;
  S* result_buffer = edge + kRows * kColumns<S>;
  for (int64_t m0 = 0; m0 < p.m; m0 += kResultM) {
    const int64_t m1 = least(p.m, m0 + kResultM);
    for (int64_t j = 0; j < p.n; j += kBlockN) {
      const int64_t n = least(kBlockN, p.n - j);
      S* c_MN = is_buffered ? result_buffer : static_cast<S*>(p.c) + m0 * p.c_row + j;
      const int64_t c_row = is_buffered ? kBlockN : p.c_row;
      if (p.k == 0 && (is_buffered || !p.accumulate)) zero_block(m1 - m0, n, c_MN, c_row);
      for (int64_t k = 0; k < p.k; k += kBlockK) {
        const int64_t depth = least(kBlockK, p.k - k);
        const bool add = k > 0 || (p.accumulate && !is_buffered);
        pack(p.b_dtype, p.b, k * p.b_row + j * p.b_column, p.b_column, p.b_row, n, depth, kColumns<S>,
             b_panel);
        for (int64_t i = m0; i < m1; i += kBlockM) {
          const int64_t m = least(kBlockM, m1 - i);
          pack(p.a_dtype, p.a, i * p.a_row + k * p.a_column, p.a_row, p.a_column, m, depth, kRows, a_panel);
          block_product(m, n, depth, a_panel, b_panel, c_MN + (i - m0) * c_row, c_row, add, edge);
        }
      }
      if (p.bias != nullptr) add_bias(p, j, m1 - m0, n, c_MN, c_row);
      if constexpr (sizeof(S) == 4) {
        const int64_t at = m0 * p.c_row + j;
        if (p.c_dtype == DType::bf16)
          narrow_block(p, result_buffer, m1 - m0, n, static_cast<bf16_t*>(p.c) + at);
        else if (p.c_dtype == DType::f16)
          narrow_block(p, result_buffer, m1 - m0, n, static_cast<f16_t*>(p.c) + at);
      }
    }
  }
}

void product(const Product& p) {
  if (p.c_dtype == DType::f64) {
    multiply<double>(p);
  } else {
    multiply<float>(p);
  }
}

}  // namespace

extern const ProductKernels product_kernels = {product};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
