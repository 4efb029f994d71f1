#include "ops/cpu/kernels/elementwise_kernels.h"

#include "ops/cpu/kernels/convert.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

GW_SIMD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void cast(const Elements& x, const MutableElements& y, int64_t first, int64_t last) {
  typed(x.dtype, x.data, [&](const auto* from) {
    typed(y.dtype, y.data, [&](auto* to) { convert(from + first, to + first, last - first); });
  });
}

void cast_strided(const Elements& x, int64_t x_step, const MutableElements& y, int64_t y_step, int64_t n) {
  typed(x.dtype, x.data, [&](const auto* from) {
    typed(y.dtype, y.data, [&](auto* to) {
      for (int64_t i = 0; i < n; ++i) write_one(to_scalar(from[i * x_step]), to + i * y_step);
    });
  });
}

void fill(const MutableElements& y, double value, int64_t first, int64_t last) {
  typed(y.dtype, y.data, [&](auto* to) {
    write_one(value, to + first);
    for (int64_t i = first + 1; i < last; ++i) to[i] = to[first];
  });
}

template <typename S>
void add_as(const Elements& x, S factor, const MutableElements& y, int64_t first, int64_t last) {
  S x_block[kConvertBlock], y_block[kConvertBlock];
  for (int64_t at = first; at < last; at += kConvertBlock) {
    const int64_t n = least(kConvertBlock, last - at);
    const S* from = read_block<S>(x.dtype, x.data, at, n, x_block);
    S* to = open_block<S>(y.dtype, y.data, at, n, y_block);
    for_lanes<S>(
        n, [&](int64_t i, auto part) __attribute__((always_inline)) {
          store(to + i, load(to + i, part) + load(from + i, part) * factor, part);
        });
    write_block<S>(y.dtype, y.data, at, n, to);
  }
}

void add(const Elements& x, double factor, const MutableElements& y, int64_t first, int64_t last) {
  if (x.dtype == DType::f64 || y.dtype == DType::f64) {
    add_as<double>(x, factor, y, first, last);
  } else {
    add_as<float>(x, static_cast<float>(factor), y, first, last);
  }
}

template <typename S>
void scale_as(const MutableElements& y, S factor, int64_t first, int64_t last) {
  S block[kConvertBlock];
  for (int64_t at = first; at < last; at += kConvertBlock) {
    const int64_t n = least(kConvertBlock, last - at);
    S* to = open_block<S>(y.dtype, y.data, at, n, block);
    for_lanes<S>(
        n, [&](int64_t i, auto part)
               __attribute__((always_inline)) { store(to + i, load(to + i, part) * factor, part); });
    write_block<S>(y.dtype, y.data, at, n, to);
  }
}

void scale(const MutableElements& y, double factor, int64_t first, int64_t last) {
  if (y.dtype == DType::f64) {
    scale_as<double>(y, factor, first, last);
  } else {
    scale_as<float>(y, static_cast<float>(factor), first, last);
  }
}

// Sums rows in blocks, so that the error of a long f32 sum grows with the number of blocks and not of rows.
template <typename T>
void column_sum_of(const T* x, int64_t rows, int64_t row, Scalar<T>* y, int64_t first, int64_t last) {
  constexpr int64_t block = 128;
  for (int64_t t0 = 0; t0 < rows; t0 += block) {
    const int64_t t1 = least(rows, t0 + block);
    for_lanes<T>(
        last - first, [&](int64_t i, auto part) __attribute__((always_inline)) {
          Vec<T> total{};
          const T* at = x + t0 * row + first + i;
          for (int64_t t = t0; t < t1; ++t, at += row) total += load(at, part);
          Scalar<T>* to = y + first + i;
          store(to, load(to, part) + total, part);
        });
  }
}

void column_sum(const Elements& x, int64_t rows, int64_t row, void* y, int64_t first, int64_t last) {
  if (x.dtype == DType::f64) {
    column_sum_of(static_cast<const double*>(x.data), rows, row, static_cast<double*>(y), first, last);
  } else if (x.dtype == DType::bf16) {
    column_sum_of(static_cast<const bf16_t*>(x.data), rows, row, static_cast<float*>(y), first, last);
  } else if (x.dtype == DType::f16) {
    column_sum_of(static_cast<const f16_t*>(x.data), rows, row, static_cast<float*>(y), first, last);
  } else {
    column_sum_of(static_cast<const float*>(x.data), rows, row, static_cast<float*>(y), first, last);
  }
}

// 2 KiB ahead. The hardware prefetcher does not cross from one page of 4 KiB into the next.
constexpr int64_t kAhead = 512;

// Sums term(lanes as f64) in four vectors, since a single one would wait for the latency of each addition.
// term(0) must be 0: lanes past the end are zeros.
template <typename Term>
GW_SIMD double sum_terms(const double* x, int64_t n, Term&& term) {
  constexpr int64_t step = kLanes64;
  F64 a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a += term(load(x + i));
    b += term(load(x + i + step));
    c += term(load(x + i + 2 * step));
    d += term(load(x + i + 3 * step));
  }
  for_lanes<double>(
      n - i, [&](int64_t j, auto part) __attribute__((always_inline)) { a += term(load(x + i + j, part)); });
  return sum((a + b) + (c + d));
}
template <typename Term>
GW_SIMD double sum_terms(const float* x, int64_t n, Term&& term) {
  constexpr int64_t step = kLanes32;
  F64 a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    __builtin_prefetch(x + i + kAhead);
    const TwoF64 v = widen_f64(load(x + i)), w = widen_f64(load(x + i + step));
    a += term(v.low);
    b += term(v.high);
    c += term(w.low);
    d += term(w.high);
  }
  for_lanes<float>(
      n - i, [&](int64_t j, auto part) __attribute__((always_inline)) {
        const TwoF64 v = widen_f64(load(x + i + j, part));
        a += term(v.low);
        b += term(v.high);
      });
  return sum((a + b) + (c + d));
}

template <typename S>
double norm_of(const S* x, NormKind kind, double p, int64_t n) {
  switch (kind) {
    case NormKind::one:
      return sum_terms(
          x, n, [](F64 v) __attribute__((always_inline)) { return abs(v); });
    case NormKind::two:
      return sum_terms(
          x, n, [](F64 v) __attribute__((always_inline)) { return v * v; });
    case NormKind::power: {
      double total = 0;
      for (int64_t i = 0; i < n; ++i) total += __builtin_pow(__builtin_fabs(static_cast<double>(x[i])), p);
      return total;
    }
    case NormKind::infinity: {
      Vec<S> most{}, nan{};
      for_lanes<S>(
          n, [&](int64_t i, auto part) __attribute__((always_inline)) {
            const Vec<S> v = load(x + i, part);
            most = max(abs(v), most);
            nan += v - v;  // NaN for infinity too, which is told from NaN below
          });
      const S largest = max_lane(most);
      if (sum(nan) == S{0}) return largest;
      for (int64_t i = 0; i < n; ++i)
        if (x[i] != x[i]) return x[i];
      return largest;
    }
  }
  return 0;
}

template <typename S>
double norm_as(const Elements& x, NormKind kind, double p, int64_t first, int64_t last) {
  S block[kConvertBlock];
  const int64_t step = x.dtype == kDTypeOf<S> ? last - first : kConvertBlock;
  double total = 0;
  for (int64_t at = first; at < last; at += step) {
    const int64_t n = least(step, last - at);
    const double part = norm_of<S>(read_block<S>(x.dtype, x.data, at, n, block), kind, p, n);
    if (kind != NormKind::infinity) {
      total += part;
    } else if (part > total || part != part) {
      total = part;
      if (part != part) return part;
    }
  }
  return total;
}

double norm(const Elements& x, NormKind kind, double p, int64_t first, int64_t last) {
  return x.dtype == DType::f64 ? norm_as<double>(x, kind, p, first, last)
                               : norm_as<float>(x, kind, p, first, last);
}

uint32_t checksum(const float* words, uint32_t key, int64_t first, int64_t last) {
  constexpr uint32_t kFactor = 0x9E3779B1u;
  U32 lanes{}, total{};
  for (int lane = 0; lane < kLanes32; ++lane)
    lanes[lane] = (key + static_cast<uint32_t>(first) + static_cast<uint32_t>(lane)) * kFactor;
  for_lanes<float>(last - first, [&](int64_t i, auto part) GW_BODY {
    __builtin_prefetch(words + first + i + kAhead);
    const U32 m = lanes + static_cast<uint32_t>(i) * kFactor;
    total += bits<U32>(load(words + first + i, part)) * ((m ^ (m >> 15)) | 1u);
  });
  uint32_t sum = 0;
  for (int lane = 0; lane < kLanes32; ++lane) sum += total[lane];
  return sum;
}

}  // namespace

extern const ElementwiseKernels elementwise_kernels = {cast,  cast_strided, fill, add,
                                                       scale, column_sum,   norm, checksum};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
