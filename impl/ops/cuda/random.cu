#include "base/philox_math.h"
#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

// The results have the same bits as those of base/philox.h, so the build turns off the contraction of
// products and sums for this file (CMakeLists.txt).

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;

// Thread i makes those of the two elements of counter block first / 2 + i that lie in [first, first + count).
template <typename T>
__global__ void fill_normal_kernel(T* y, uint64_t key, uint64_t first, int64_t count, double deviation) {
  const uint64_t begin = first / 2, end = (first + static_cast<uint64_t>(count) + 1) / 2;
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t b = begin + static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; b < end;
       b += threads) {
    const philox_math::Polar p = philox_math::polar(key, b);
    const double radius = sqrt(p.radius_squared);
    if (2 * b >= first) y[2 * b - first] = narrow<T>(radius * p.x * deviation);
    if (2 * b + 1 < first + static_cast<uint64_t>(count))
      y[2 * b + 1 - first] = narrow<T>(radius * p.y * deviation);
  }
}

}  // namespace

void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation, Stream& stream) {
  const int64_t count = y.count();
  if (count == 0) return;
  with_float(y.dtype(), [&](auto type) {
    using T = decltype(type);
    launch("fill_normal", fill_normal_kernel<T>, {blocks(pieces(count / 2 + 1, kThreads)), kThreads, 0},
           native(stream), y.data<T>(), key, first_element, count, deviation);
  });
}

}  // namespace gangway::cuda
