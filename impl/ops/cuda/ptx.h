// Instructions of sm_80 and newer for which CUDA C++ has no functions (PTX ISA 9.0: "Warp Level Matrix
// Multiply-Accumulate Instructions", "Data Movement and Conversion Instructions"). The software GPU of the
// tests replaces this header by its own (tests/gpu_emulation/include/ops/cuda/ptx.h).
//
// Thread rule: inside kernels; mma_m16n8k16 and ldmatrix_x4 by whole warps.
#pragma once

#include <cstdint>

#include "ops/cuda/numbers.h"

namespace gangway::cuda {

// Rounds two numbers to T (Bf16 or Half), to nearest with ties to even, and packs them into a register, the
// first one into the lower half.
template <typename T>
__device__ inline uint32_t pack_pair(float first, float second) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, Bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// sum (16 x 8) += a (16 x 16) times b (16 x 8), of T. A lane holds these elements:
//   sum: rows lane / 4 (at 0, 1) and lane / 4 + 8 (at 2, 3), columns lane % 4 * 2 and the next a:   rows lane
//   / 4 (at 0, 2) and lane / 4 + 8 (at 1, 3), columns lane % 4 * 2 and the next, plus 8 (at 2, 3) b:   rows
//   lane % 4 * 2 and the next, plus 8 (at 1), column lane / 4
template <typename T>
__device__ inline void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Hides from the compiler where `number` comes from. The compiler then computes what follows from it in each
// round of a loop. Otherwise it would do so once, before the loop, and keep the results in registers that the
// loop needs.
__device__ inline unsigned hidden(unsigned number) {
  asm volatile("" : "+r"(number));
  return number;
}

__device__ inline uint32_t shared_address(const void* data) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(data));
}

// Loads four matrices of 8 x 8 16-bit elements from shared memory. Lanes 8 m to 8 m + 7 pass the addresses of
// the rows of matrix m, each of 16 aligned bytes. A lane gets two elements of matrix m in to[m]: those of row
// lane / 4 in column lane % 4 * 2 and the next one; if transposed, those of column lane / 4 in row lane % 4 *
// 2 and the next one.
template <bool transposed>
__device__ inline void ldmatrix_x4(uint32_t (&to)[4], const void* row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Starts a copy of 4 or 16 aligned bytes from global to shared memory. If the source does not exist, it
// writes zeros and reads nothing. The old content is lost from the call on. This thread may read the new
// content after cp_async_wait, and the other threads after one more barrier.
template <int bytes>
__device__ inline void cp_async(void* to, const void* from, bool exists) {
  static_assert(bytes == 4 || bytes == 16);
  const int read = exists ? bytes : 0;
  if constexpr (bytes == 16)  // bypasses L1, because no other thread of the block reads the data
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(read)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(read)
                 : "memory");
}
__device__ inline void cp_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Returns 2^x with a relative error of 2^-22, and 0 for results below 2^-126.
__device__ inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Returns 1 / x with a relative error of 2^-23, and 0 for results below 2^-126.
__device__ inline float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace gangway::cuda
