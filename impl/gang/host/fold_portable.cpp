#include <cstdint>
#include <type_traits>

#include "gang/host/fold_table.h"

namespace gangway::host::portable {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline void load_f16(float* __restrict acc, const F16* in, size_t n) {
  for (size_t i = 0; i < n; ++i) acc[i] = to_f32(f16_t{in[i].bits});
}

inline void store_f16(F16* __restrict out, const float* acc, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i].bits = to_f16(acc[i]).bits;
}

#include "gang/host/fold_kernels.inc"

}  // namespace

const FoldKernels kKernels{fold, add, "portable"};

}  // namespace gangway::host::portable
