// Small kernels that use each kind of instruction that the module's kernels use. sample.ptx is what nvcc makes
// of this file (sample.sh); the tests also compile it for the software GPU, and compare.
#include "ops/cuda/ptx.h"
#include "ops/cuda/reduce.h"

namespace gangway::cuda {
namespace {

struct Scale {
  const Bf16* from;
  Half* to;
  double by;
  int64_t count;
  bool negative;
};
// Parameters of several sizes in one struct; packs of 16 bytes; both 16-bit types; a 64-bit division.
__global__ void scale_kernel(Scale all) {
  const int64_t packs = all.count / 8;
  for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    const Pack<Bf16, 8> in = load<8>(all.from + i * 8);
    Pack<Half, 8> out;
    for (int k = 0; k < 8; ++k) {
      const float x = widen(in.at[k]) * static_cast<float>(all.by) / 3;
      out.at[k] = narrow<Half>(all.negative ? -x : x);
    }
    store<8>(all.to + (packs - 1 - i) * 8, out);
  }
  for (int64_t i = packs * 8 + threadIdx.x; i < all.count; i += blockDim.x) all.to[i] = narrow<Half>(0.5f);
}

// Shared memory, barriers and shuffles.
template <typename S>
__global__ void softmax_kernel(const S* from, S* to, int64_t width) {
  S* const scratch = block_memory<S>();
  const S* const row = from + blockIdx.x * width;
  S most = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) most = Largest()(most, row[i]);
  most = block_fold(most, S(-INFINITY), scratch, Largest());
  __syncthreads();
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += exp(row[i] - most);
  sum = block_sum(sum, scratch);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    to[blockIdx.x * width + i] = exp(row[i] - most) / sum;
}

// A function that nvcc does not put in the place of its call.
__global__ void power_kernel(const double* from, double* to, double by, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = pow(from[i], by) + sqrt(from[i]) + log(from[i]);
}

// Integers of each width: sums, remainders, votes, atomics.
__global__ void count_kernel(const int64_t* from, int* counts, int64_t count, int of) {
  for (int64_t base = 0; base < count; base += kWarpSize) {
    const int64_t i = base + threadIdx.x;
    const int64_t value = i < count ? from[i] : -1;
    const unsigned odd = __ballot_sync(kWholeWarp, value >= 0 && value % 2 != 0);
    if (threadIdx.x == 0)
      for (unsigned left = odd; left != 0; left &= left - 1) counts[of] += __ffs(static_cast<int>(left)) > 0;
    if (value >= 0) atomicAdd(counts + (value % of + of) % of, 1);
    __syncwarp();
  }
}

// Tensor cores: asynchronous copies into shared memory, matrices out of it, a product of 16 x 16 with 16 x 8.
template <typename T>
__global__ void product_kernel(const T* a, const T* b, float* to, bool second) {
  T* const left = block_memory<T>();
  T* const right = left + 256;
  const int lane = static_cast<int>(threadIdx.x);
  cp_async<16>(left + lane * 8, a + lane * 8, true);
  cp_async<16>(right + lane * 8, b + lane * 8, lane < 16 || second);
  cp_async_wait();
  __syncthreads();
  uint32_t x[4], y[4];
  ldmatrix_x4<false>(x, left + lane % 16 * 16 + lane / 16 * 8);
  ldmatrix_x4<true>(y, right + lane * 8);
  float sum[4] = {1, 2, 3, 4};
  mma_m16n8k16<T>(sum, x, y[0], y[1]);
  mma_m16n8k16<T>(sum, x, y[2], y[3]);
  for (int k = 0; k < 4; ++k)
    to[(lane / 4 + k / 2 * 8) * 8 + lane % 4 * 2 + k % 2] =
        k == 0 ? exp2_approximate(sum[k] * 0.01f) : reciprocal_approximate(sum[k]);
}

// The faults below are planted.
__global__ void race_kernel(float* data) {
  float* const all = block_memory<float>();
  all[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = all[threadIdx.x ^ 33];
}
__global__ void two_blocks_kernel(float* data) {
  if (threadIdx.x == 0) data[0] = static_cast<float>(blockIdx.x);
}
__global__ void misaligned_kernel(float* data) {
  store<4>(data, Pack<float, 4>{{1, 2, 3, 4}});
}
__global__ void beyond_shared_kernel(float* data, int at) {
  block_memory<float>()[at + static_cast<int>(threadIdx.x)] = data[0];
}
__global__ void beyond_global_kernel(float* data, int at) { data[at] = 1; }
__global__ void __launch_bounds__(64) bounded_kernel(float* data) { data[threadIdx.x] = 2; }

// So that both compilers make every kernel.
[[maybe_unused]] const void* const kAll[] = {
    reinterpret_cast<const void*>(scale_kernel),          reinterpret_cast<const void*>(softmax_kernel<float>),
    reinterpret_cast<const void*>(softmax_kernel<double>), reinterpret_cast<const void*>(power_kernel),
    reinterpret_cast<const void*>(count_kernel),          reinterpret_cast<const void*>(product_kernel<Bf16>),
    reinterpret_cast<const void*>(product_kernel<Half>),  reinterpret_cast<const void*>(race_kernel),
    reinterpret_cast<const void*>(two_blocks_kernel),     reinterpret_cast<const void*>(misaligned_kernel),
    reinterpret_cast<const void*>(beyond_shared_kernel),  reinterpret_cast<const void*>(beyond_global_kernel),
    reinterpret_cast<const void*>(bounded_kernel)};

}  // namespace
}  // namespace gangway::cuda
