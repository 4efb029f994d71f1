#include "ops/cpu/kernels/adafactor_kernels.h"

#include "ops/cpu/kernels/convert.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

GW_SIMD int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
GW_SIMD float root(float x) { return __builtin_sqrtf(x); }
GW_SIMD double root(double x) { return __builtin_sqrt(x); }

// Calls body(column, n, elements as S) for the blocks of columns [first, last) of row `row`.
template <typename S, typename Body>
GW_SIMD void over_row(const Stored& x, int64_t row, int64_t columns, int64_t first, int64_t last,
                      Body&& body) {
  S block[kConvertBlock];
  for (int64_t at = first; at < last; at += kConvertBlock) {
    const int64_t n = least_of(kConvertBlock, last - at);
    body(at, n, read_block<S>(x.dtype, x.data, row * columns + at, n, block));
  }
}

void row_sums(const FactorSums& sums, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    double sum = 0;
    over_row<double>(
        sums.g, row, sums.column_count, 0,
        sums.column_count, [&](int64_t, int64_t n, const double* g) __attribute__((always_inline)) {
          for (int64_t i = 0; i < n; ++i) {
            const double x = g[i] * sums.g_factor;
            sum += x * x;
          }
        });
    sums.rows[row] += sum;
  }
}

void column_sums(const FactorSums& sums, int64_t matrix, int64_t first, int64_t last) {
  double* const to = sums.columns + matrix * sums.column_count;
  for (int64_t row = matrix * sums.row_count; row < (matrix + 1) * sums.row_count; ++row)
    over_row<double>(
        sums.g, row, sums.column_count, first,
        last, [&](int64_t at, int64_t n, const double* g) __attribute__((always_inline)) {
          for (int64_t i = 0; i < n; ++i) {
            const double x = g[i] * sums.g_factor;
            to[at + i] += x * x;
          }
        });
}

// Calls body(column, n, u) for the blocks of a row.
template <typename S, typename Body>
GW_SIMD void over_updates(const AdafactorUpdate& a, int64_t row, Body&& body) {
  const int64_t matrix = row / a.row_count;
  const S g_factor = static_cast<S>(a.g_factor), least = static_cast<S>(a.least * a.least);
  S of_row = static_cast<const S*>(a.row.data)[row];
  const S* columns = nullptr;
  if (a.column.data != nullptr) {
    const double mean = a.totals[matrix] / static_cast<double>(a.all_rows);
    of_row = static_cast<S>(static_cast<double>(of_row) / (mean < a.least ? a.least : mean));
    columns = static_cast<const S*>(a.column.data) + matrix * a.column_count;
  }
  over_row<S>(
      a.g, row, a.column_count, 0,
      a.column_count, [&](int64_t at, int64_t n, const S* g) __attribute__((always_inline)) {
        S u[kConvertBlock];
        for (int64_t i = 0; i < n; ++i) {
          const S v = columns != nullptr ? of_row * columns[at + i] : of_row;
          u[i] = g[i] * g_factor / root(v < least ? least : v);
        }
        body(at, n, u);
      });
}

template <typename S>
void squares_as(const AdafactorUpdate& update, double* squares, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    double sum = 0;
    over_updates<S>(
        update, row, [&](int64_t, int64_t n, const S* u) __attribute__((always_inline)) {
          for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(u[i]) * static_cast<double>(u[i]);
        });
    squares[row] = sum;
  }
}

void squares(const AdafactorUpdate& update, double* squares, int64_t first, int64_t last) {
  if (update.row.dtype == DType::f64) {
    squares_as<double>(update, squares, first, last);
  } else {
    squares_as<float>(update, squares, first, last);
  }
}

template <typename S>
void step_as(const AdafactorStep& step, int64_t first, int64_t last) {
  const S keep = static_cast<S>(step.keep), rate = static_cast<S>(step.rate);
  for (int64_t row = first; row < last; ++row)
    over_updates<S>(
        step.update, row, [&](int64_t at, int64_t n, const S* u) __attribute__((always_inline)) {
          const int64_t begin = row * step.update.column_count + at;
          S* const p = static_cast<S*>(step.p.data) + begin;
          for (int64_t i = 0; i < n; ++i) p[i] = p[i] * keep - rate * u[i];
          if (step.copy.data != nullptr) write_block<S>(step.copy.dtype, step.copy.data, begin, n, p);
        });
}

void step(const AdafactorStep& step, int64_t first, int64_t last) {
  if (step.p.dtype == DType::f64) {
    step_as<double>(step, first, last);
  } else {
    step_as<float>(step, first, last);
  }
}

}  // namespace

extern const AdafactorKernels adafactor_kernels = {row_sums, column_sums, squares, step};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
