// Adafactor over rows of a gradient [.., rows, columns]. Row r of all lies in matrix r / rows.
//
// Thread rule: pure; several threads may work at the same time on ranges that do not overlap.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/optimizer_kernels.h"

namespace gangway::cpu {

struct FactorSums {
  Stored g;
  double *rows, *columns;  // null: not wanted
  int64_t row_count, column_count;
  double g_factor;
};

// u = g * g_factor / sqrt(max(v, least^2)), v = row * column / max(total / all_rows, least); without columns
// v = row.
struct AdafactorUpdate {
  Stored g, row, column;
  const double* totals;
  int64_t row_count, column_count, all_rows;
  double g_factor, least;
};

// p = p * keep - rate * u
struct AdafactorStep {
  AdafactorUpdate update;
  Stored p, copy;
  double keep, rate;
};

struct AdafactorKernels {
  // Adds the sums of squares of rows [first, last) of all.
  void (*row_sums)(const FactorSums& sums, int64_t first, int64_t last);
  // Adds those of columns [first, last) of one matrix.
  void (*column_sums)(const FactorSums& sums, int64_t matrix, int64_t first, int64_t last);
  // Writes the sum of u^2 of each of the rows [first, last) of all to squares[row].
  void (*squares)(const AdafactorUpdate& update, double* squares, int64_t first, int64_t last);
  void (*step)(const AdafactorStep& step, int64_t first, int64_t last);  // rows of all
};

namespace portable {
extern const AdafactorKernels adafactor_kernels;
}
namespace avx2 {
extern const AdafactorKernels adafactor_kernels;
}
namespace avx512 {
extern const AdafactorKernels adafactor_kernels;
}

}  // namespace gangway::cpu
