// More tools for the fused kernels: a test fixture per instruction set and finite differences.
#pragma once

#include <cstring>

#include "ops/ops_testing.h"

namespace gangway::ops_testing {

// Test cases run once per instruction set; one that the processor lacks is skipped with the reason.
class EachIsa : public testing::TestWithParam<cpu::Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > cpu::processor_isa())
      GTEST_SKIP() << "this processor has no " << cpu::name(GetParam()) << ", only "
                   << cpu::name(cpu::processor_isa());
  }
};

inline auto all_isas() {
  return testing::ValuesIn(on_cpu() ? std::vector{cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}
                                    : available_isas());
}
inline std::string isa_name(const testing::TestParamInfo<cpu::Isa>& info) { return cpu::name(info.param); }

// d loss / d x by central differences of fourth order: with h = 1e-3 both the truncation and the rounding
// stay below 1e-11 for functions of moderate size.
template <typename Loss>
std::vector<double> numeric_gradient(const std::vector<double>& x, Loss&& loss, double h = 1e-3) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = [&](double step) {
      std::vector<double> moved = x;
      moved[i] += step;
      return loss(moved);
    };
    gradient[i] = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
  }
  return gradient;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The same bytes; for contiguous tensors.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 ||
          std::memcmp(HostMemory(a).data<char>(), HostMemory(b).data<char>(), a.bytes()) == 0);
}

inline DType accumulator_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace gangway::ops_testing
