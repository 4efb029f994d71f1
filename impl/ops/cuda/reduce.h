// Sums and maxima over the threads of a warp or a block. Their order depends on the shape only.
//
// Thread rule: inside a kernel, called by all threads of a block of whole warps.
#pragma once

#include "ops/cuda/launch.h"

namespace gangway::cuda {

struct Add {
  template <typename S>
  __device__ S operator()(S a, S b) const {
    return a + b;
  }
};
// The result is NaN if `a` or `b` is NaN.
struct Largest {
  template <typename S>
  __device__ S operator()(S a, S b) const {
    return a > b || a != a ? a : b;
  }
};

template <typename S, typename Fold>
__device__ inline S warp_fold(S value, Fold fold) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    value = fold(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

// Returns the result to every thread. `scratch` is kWarpSize elements of shared memory, which may be reused
// after the next barrier.
template <typename S, typename Fold>
__device__ inline S block_fold(S value, S identity, S* scratch, Fold fold) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = warp_fold(value, fold);
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  return warp_fold(lane < warps ? scratch[lane] : identity, fold);
}
template <typename S>
__device__ inline S block_sum(S value, S* scratch) {
  return block_fold(value, S(0), scratch, Add());
}

}  // namespace gangway::cuda
