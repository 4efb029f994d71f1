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
T rounded(decltype(wide(T{})) x) {
  T to;
  narrow(x, to);
  return to;
}

struct Ring {
  template <typename T>
  static void run(ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count) {
    using S = decltype(wide(T{}));
    const S ranks = static_cast<S>(in.size());
    const auto item = [&](const void* from, size_t i) {
      const S x = wide(static_cast<const T*>(from)[i]);
      return op == ncclAvg ? wide(rounded<T>(static_cast<S>(x / ranks))) : x;
    };
    for (size_t i = 0; i < count; ++i) {
      S sum = item(in[0], i);
      for (const void* const other : in.subspan(1))
        sum = wide(rounded<T>(static_cast<S>(fold(op, sum, item(other, i)))));
      narrow(sum, static_cast<T*>(out)[i]);
    }
  }
};

struct Fold {
  template <typename T>
  static void run(ncclRedOp_t op, std::span<const void* const> in, void* out, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      auto sum = wide(static_cast<const T*>(in[0])[i]);
      for (const void* const other : in.subspan(1))
        sum = fold(op, sum, wide(static_cast<const T*>(other)[i]));
      if (op == ncclAvg) sum = static_cast<decltype(sum)>(sum / static_cast<decltype(sum)>(in.size()));
      narrow(sum, static_cast<T*>(out)[i]);
    }
  }
};

template <typename How>
void reduce_by(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out,
               size_t count) {
  switch (type) {
    case ncclUint8: return How::template run<uint8_t>(op, in, out, count);
    case ncclInt32: return How::template run<int32_t>(op, in, out, count);
    case ncclInt64: return How::template run<int64_t>(op, in, out, count);
    case ncclFloat16: return How::template run<__half>(op, in, out, count);
    case ncclFloat32: return How::template run<float>(op, in, out, count);
    case ncclFloat64: return How::template run<double>(op, in, out, count);
    case ncclBfloat16: return How::template run<__nv_bfloat16>(op, in, out, count);
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
  reduce_by<Fold>(type, op, in, out, count);
}
void reduce_in_ring(ncclDataType_t type, ncclRedOp_t op, std::span<const void* const> in, void* out,
                    size_t count) {
  reduce_by<Ring>(type, op, in, out, count);
}

}  // namespace gpu_emulation
