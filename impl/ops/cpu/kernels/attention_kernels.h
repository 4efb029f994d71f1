// Grouped-query attention of one key/value head. A task is one (batch, key/value head) with all query heads
// of its group. Strides are in elements; the last dim has stride 1.
//
// Thread rule: pure; a task runs on one thread with its own scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

// A [batch, sequence, head, width] tensor. `wide` means that its elements are f32 although the operation's
// are bf16 or f16.
struct HeadsView {
  void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
  bool wide = false;
};

struct AttentionShape {
  int64_t sq, sk, heads, groups, width;
  double scale;
  bool causal;
  int64_t shift;  // causal: query i sees key j when j <= i + shift
  double cap;     // above 0: scores become cap * tanh(score / cap)
  // Not null: query i of row b sees keys j with first_key[at] <= key_offset + j < end_key[at], where at is
  // b * range_stride + i. Neither decreases from query to query. `causal` is not read then.
  const int32_t *first_key, *end_key;
  int64_t range_stride, key_offset;
};

struct AttentionForward {
  AttentionShape shape;
  HeadsView q, k, v, out;
  void* lse;          // [B, H, Sq] contiguous, f32 or f64; may be null
  const void* sinks;  // [H], or null
};
struct AttentionBackward {
  AttentionShape shape;
  HeadsView q, k, v, out, dout, dq, dk, dv;
  const void* lse;
  bool accumulate;    // dq, dk and dv +=
  const void* sinks;  // [H]; read only with dsinks
  double* dsinks;     // [B, H] +=, or null
};

// A [batch, head, sequence] tensor of f32 or f64.
struct StatisticsView {
  void* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
};
struct AttentionMerge {
  int64_t sequence, heads, width;
  HeadsView out, part;
  StatisticsView lse, part_lse;
};

struct AttentionKernels {
  // Returns the bytes of scratch that a thread needs. The scratch must be aligned to 64 bytes.
  ByDType<size_t (*)(const AttentionShape&)> scratch;
  // Runs tasks [first, last) of batch * groups. The key/value head is the fastest index.
  ByDType<void (*)(const AttentionForward&, void* scratch, int64_t first, int64_t last)> run;
};
struct AttentionMergeKernels {
  // Merges rows [first, last) of batch * sequence, with all heads. The table is indexed by the dtype of the
  // part.
  ByDType<void (*)(const AttentionMerge&, int64_t first, int64_t last)> run;
};
struct AttentionBackwardKernels {
  ByDType<size_t (*)(const AttentionShape&)> scratch;
  ByDType<void (*)(const AttentionBackward&, void* scratch, int64_t first, int64_t last)> run;
};

namespace portable {
extern const AttentionKernels attention_kernels;
extern const AttentionMergeKernels attention_merge_kernels;
extern const AttentionBackwardKernels attention_backward_kernels;
}  // namespace portable
namespace avx2 {
extern const AttentionKernels attention_kernels;
extern const AttentionMergeKernels attention_merge_kernels;
extern const AttentionBackwardKernels attention_backward_kernels;
}  // namespace avx2
namespace avx512 {
extern const AttentionKernels attention_kernels;
extern const AttentionMergeKernels attention_merge_kernels;
extern const AttentionBackwardKernels attention_backward_kernels;
}  // namespace avx512

}  // namespace gangway::cpu
