#include "gpu_emulation/reduce.h"

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gpu_emulation {
namespace {

template <typename T>
T fold(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd: return static_cast<T>(a * b);
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return static_cast<T>(a + b);
  }
}

float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
float wide(__half x) { return __half2float(x); }
template <typename T>
T wide(T x) {
  return x;
}
void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
void narrow(float x, __half& to) { to = __float2half_rn(x); }
template <typename T>
void narrow(T x, T& to) {
  to = x;
}

template <typename T>
void reduce_as(ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    auto sum = wide(static_cast<const T*>(in[0])[i]);
    for (const void* const other : in.subspan(1)) sum = fold(op, sum, wide(static_cast<const T*>(other)[i]));
    if (op == ncclAvg) sum = static_cast<decltype(sum)>(sum / static_cast<decltype(sum)>(in.size()));
    narrow(sum, static_cast<T*>(out)[i]);
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

void reduce(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count) {
  switch (type) {
    case ncclUint8: return reduce_as<uint8_t>(op, in, out, count);
    case ncclInt32: return reduce_as<int32_t>(op, in, out, count);
    case ncclInt64: return reduce_as<int64_t>(op, in, out, count);
    case ncclFloat16: return reduce_as<__half>(op, in, out, count);
    case ncclFloat32: return reduce_as<float>(op, in, out, count);
    case ncclFloat64: return reduce_as<double>(op, in, out, count);
    case ncclBfloat16: return reduce_as<__nv_bfloat16>(op, in, out, count);
  }
}

}  // namespace gpu_emulation
