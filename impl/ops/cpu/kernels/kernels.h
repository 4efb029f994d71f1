// Kernel tables. A family has a source kernels/<family>_kernels.cpp, which is compiled once for each
// instruction set into a namespace of its own (gangway_per_isa in impl/ops/CMakeLists.txt). Its header
// kernels/<family>_kernels.h has plain structs and the table of function pointers that every copy exports. On
// a processor that is not x86-64, all copies are compiled the same way, and the first one is used.
//
// Thread rule: constants.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace gangway::cpu {

enum class Isa : uint8_t;

// One function pointer for each dtype of the activations.
template <typename Function>
struct ByDType {
  Function f32, bf16, f16, f64;

  Function operator[](DType dtype) const {
    switch (dtype) {
      case DType::f64: return f64;
      case DType::bf16: return bf16;
      case DType::f16: return f16;
      default: return f32;
    }
  }
};

// Returns the table of an instruction set. The tables are passed in the order of Isa.
template <typename Table>
const Table& choose(Isa isa, const Table& portable, const Table& avx2, const Table& avx512) {
  const Table* const copies[] = {&portable, &avx2, &avx512};
  return *copies[static_cast<uint8_t>(isa)];
}

}  // namespace gangway::cpu
