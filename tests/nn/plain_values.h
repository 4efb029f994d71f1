// Tensors as vectors of f64, whatever they hold and however they lie in memory.
#pragma once

#include <vector>

#include "support/host_memory.h"
#include "tensor/tensor.h"

namespace gangway::nn_testing {

using Vector = std::vector<double>;

inline int64_t place(const Tensor& t, int64_t i) {
  int64_t at = 0;
  for (int d = t.rank() - 1; d >= 0; --d) {
    at += i % t.dim(d) * t.stride(d);
    i /= t.dim(d);
  }
  return at;
}

inline Vector get(const Tensor& t) {
  const test::HostMemory host(t);
  Vector out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t at = place(t, static_cast<int64_t>(i));
    switch (dlpack_code(t.dtype()) << 8 | dlpack_bits(t.dtype())) {
      case 2 << 8 | 64: out[i] = host.data<double>()[at]; break;
      case 2 << 8 | 32: out[i] = host.data<float>()[at]; break;
      case 4 << 8 | 16: out[i] = to_f32(host.data<bf16_t>()[at]); break;
      case 2 << 8 | 16: out[i] = to_f32(host.data<f16_t>()[at]); break;
      case 0 << 8 | 32: out[i] = host.data<int32_t>()[at]; break;
      default: out[i] = static_cast<double>(host.data<int64_t>()[at]);
    }
  }
  return out;
}

inline void put(const Tensor& t, const Vector& from) {
  test::HostMemory host(t);
  GW_CHECK(t.count(), ==, static_cast<int64_t>(from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t at = place(t, static_cast<int64_t>(i));
    switch (dlpack_code(t.dtype()) << 8 | dlpack_bits(t.dtype())) {
      case 2 << 8 | 64: host.data<double>()[at] = from[i]; break;
      case 2 << 8 | 32: host.data<float>()[at] = static_cast<float>(from[i]); break;
      case 4 << 8 | 16: host.data<bf16_t>()[at] = to_bf16(static_cast<float>(from[i])); break;
      case 2 << 8 | 16: host.data<f16_t>()[at] = to_f16(static_cast<float>(from[i])); break;
      case 0 << 8 | 32: host.data<int32_t>()[at] = static_cast<int32_t>(from[i]); break;
      default: host.data<int64_t>()[at] = static_cast<int64_t>(from[i]);
    }
  }
  host.write();
}

inline size_t size(const Tensor& t, int dim) { return static_cast<size_t>(t.dim(dim)); }

}  // namespace gangway::nn_testing
