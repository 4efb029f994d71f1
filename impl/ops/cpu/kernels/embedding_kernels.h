// The scatter of embedding gradients. Legend: T tokens, D width.
//
// Thread rule: pure; threads share columns, not rows.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct EmbeddingScatter {
  const int64_t* ids;
  const void* dy;  // [T, D]
  void* dtable;    // [V, D], f32 or f64
  int64_t tokens, width, rows, first_row;
};

struct EmbeddingKernels {
  // dtable[ids[t] - first_row, d] += dy[t, d] for columns d in [first, last), with t rising. Ids without a
  // row are skipped.
  ByDType<void (*)(const EmbeddingScatter&, int64_t first, int64_t last)> scatter;
};

namespace portable {
extern const EmbeddingKernels embedding_kernels;
}
namespace avx2 {
extern const EmbeddingKernels embedding_kernels;
}
namespace avx512 {
extern const EmbeddingKernels embedding_kernels;
}

}  // namespace gangway::cpu
