// Row kernels of dropout. Legend: T tokens, D width. Rows are contiguous.
//
// Thread rule: pure; threads share the rows.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct DropoutRows {
  const void* x;
  void* y;
  const int64_t* rows;  // [T], or null: first_row + t
  int64_t first_row, first_column, columns, width;
  uint64_t key;
  uint64_t threshold;  // an element is kept if the 53 bits of its uniform number are not below it
  double scale;        // of what is kept
};

struct DropoutKernels {
  ByDType<void (*)(const DropoutRows&, int64_t first, int64_t last)> apply;  // rows [first, last)
};

namespace portable {
extern const DropoutKernels dropout_kernels;
}
namespace avx2 {
extern const DropoutKernels dropout_kernels;
}
namespace avx512 {
extern const DropoutKernels dropout_kernels;
}

}  // namespace gangway::cpu
