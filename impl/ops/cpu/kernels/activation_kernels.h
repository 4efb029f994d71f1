// Kernels of activations over contiguous elements.
//
// Thread rule: pure; threads share the elements.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway {
enum class Activation : uint8_t;
}

namespace gangway::cpu {

constexpr int kActivations = 5;

// One entry for each Activation, in its order.
template <typename Entry>
struct ByActivation {
  Entry entries[kActivations];
  const Entry &operator[](Activation a) const { return entries[static_cast<uint8_t>(a)]; }
};

struct ActivationElements {
  const void *x, *dy;  // dy is read only by the backward
  void *y, *dx;        // y may be null in the backward
};

// Computes elements [first, last).
using ActivationKernel = ByDType<void (*)(const ActivationElements &, int64_t first, int64_t last)>;

struct ActivationKernels {
  ByActivation<ActivationKernel> forward, backward;
};

namespace portable {
extern const ActivationKernels activation_kernels;
}
namespace avx2 {
extern const ActivationKernels activation_kernels;
}
namespace avx512 {
extern const ActivationKernels activation_kernels;
}

}  // namespace gangway::cpu
