// cuDNN itself makes whole plans with compiled kernels for the described properties of a GPU that is not
// present. It loads code into a driver, for which driver_without_gpu.c stands in. The tests show that the
// graphs are valid, that cuDNN has kernels for them, and how much workspace they need. They do not show
// numbers. They are skipped if libcudnn.so.9 is not found.
#include <cstdio>

#include "base/error_of.h"
#include "ops/check.h"
#include "ops/cuda/cudnn/plans.h"
#include "ops/ops_testing.h"

namespace gangway::cuda {
namespace {

using namespace ops_testing;

struct Gpu {
  const char* name;
  int architecture, processors, clock, memory_clock, l2_bytes, shared_bytes;
  int64_t memory;
};
constexpr Gpu kGpus[] = {
    {"NVIDIA A100-SXM4-80GB", 80, 108, 1410000, 1593000, 41943040, 166912, 85899345920},
    {"NVIDIA H100 80GB HBM3", 90, 132, 1980000, 2619000, 52428800, 232448, 85899345920},
    {"NVIDIA B200", 100, 148, 1965000, 3996000, 132644864, 232448, 191500000000},
};

// In cuDNN's format (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
std::string properties_of(const Gpu& gpu) {
  return text(
      "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"cudaDeviceId\": "
      "0, "
      "\"deviceVer\": ",
      10 * gpu.architecture,
      ", \"driverVer\": 13000, \"regsPerBlock\": 65536, "
      "\"multiProcessorCount\": ",
      gpu.processors, ", \"smClockRateKHz\": ", gpu.clock, ", \"memClockRateKHz\": ", gpu.memory_clock,
      ", \"l2CacheSize\": ", gpu.l2_bytes,
      ", \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": ",
      gpu.shared_bytes,
      ", \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
      "\"pciDeviceId\": 0, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
      "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": ",
      gpu.memory, ", \"deviceName\": \"", gpu.name, "\"}");
}

struct ShapedCall {
  AttentionCall call;
  size_t workspace = 0;  // that a backward has
};
// Makes a call on the meta device, which has only shapes and strides.
ShapedCall call_of_shape(bool backward, DType dtype, int64_t rows, int64_t heads, int64_t groups,
                         int64_t width, bool causal, int64_t batch = 2) {
  const auto meta = make_device("meta");
  const auto empty = [&](const Shape& shape) { return Tensor::allocate(meta->allocator(), dtype, shape); };
  const auto projection = [&] { return empty({batch, rows, heads + 2 * groups, width}); };
  const Tensor all = projection(), gradients = projection(), out = empty({batch, rows, heads, width});
  const auto q = [&](const Tensor& t) { return t.slice(2, 0, heads); };
  const auto k = [&](const Tensor& t) { return t.slice(2, heads, heads + groups); };
  const auto v = [&](const Tensor& t) { return t.slice(2, heads + groups, heads + 2 * groups); };
  const Tensor lse = Tensor::allocate(meta->allocator(), DType::f32, {batch, heads, rows});
  if (!backward) return {call_of(AttentionArgs{q(all), k(all), v(all), out, lse, 0.125, causal, 0, 0})};
  const AttentionBackwardArgs args = {q(all),       k(all),       v(all), out,    lse, out, q(gradients),
                                      k(gradients), v(gradients), 0.125,  causal, 0,   0,   false};
  return {call_of(args), cudnn_workspace_bytes(args)};
}

class CudnnPlans : public testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    try {
      library_ =
          open_cudnn({.architecture = GetParam().architecture, .properties = properties_of(GetParam())});
    } catch (const Error& error) {
      if (error.code() != Code::not_supported) throw;
      GTEST_SKIP() << error.message();
    }
  }
  // Prints the size as well, so that the output is a table.
  void expect_plan(const ShapedCall& shaped) {
    constexpr size_t kOfForward = size_t{32} << 20, kForAlignment = 256;
    const AttentionCall& call = shaped.call;
    EXPECT_EQ(why_own_kernels(call, GetParam().architecture), nullptr) << call.graph.text();
    const size_t bytes = library_->plan(call.graph)->workspace_bytes();
    const size_t most = call.graph.backward ? shaped.workspace : kOfForward;
    std::printf("sm_%d: %s: %zu bytes of workspace, of %zu\n", GetParam().architecture,
                call.graph.text().c_str(), bytes, most);
    EXPECT_LE(bytes + kForAlignment, most) << call.graph.text();
  }
  std::unique_ptr<Cudnn> library_;
};

TEST_P(CudnnPlans, EveryKindOfCallThatIsSentToCudnnHasAPlan) {
  for (const bool backward : {false, true})
    for (const bool causal : {true, false})
      for (const auto& [dtype, width] : {std::pair(DType::bf16, 128), std::pair(DType::f16, 64)})
        expect_plan(call_of_shape(backward, dtype, 256, 8, 2, width, causal));
}

TEST_P(CudnnPlans, OddWidthsAndLengthsHavePlans) {
  for (const int64_t width : {24, 96}) {
    expect_plan(call_of_shape(false, DType::bf16, 77, 6, 3, width, true));
    expect_plan(call_of_shape(true, DType::bf16, 384, 6, 3, width, true));
  }
  if (GetParam().architecture != 90) return;
  expect_plan(call_of_shape(false, DType::bf16, 256, 4, 4, 256, true));
  expect_plan(call_of_shape(true, DType::bf16, 256, 4, 4, 256, true));
}

// An 8B model's attention, by length.
TEST_P(CudnnPlans, ABackwardOf4096TokensFits) {
  for (const int64_t rows : {1024, 4096})
    expect_plan(call_of_shape(true, DType::bf16, rows, 32, 8, 128, true, 1));
}

TEST_P(CudnnPlans, AGraphThatCudnnDoesNotTakeIsNotSupportedWithItsWords) {
  const AttentionCall call = call_of_shape(false, DType::bf16, 128, 2, 1, 60, true).call;
  const Error error = test::error_of([&] { library_->plan(call.graph); });
  EXPECT_EQ(error.code(), Code::not_supported) << error.message();
  EXPECT_NE(error.message().find("width 60"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("multiple of 8"), std::string::npos) << error.message();
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudnnPlans, testing::ValuesIn(kGpus),
                         [](const auto& gpu) { return "sm_" + std::to_string(gpu.param.architecture); });

}  // namespace
}  // namespace gangway::cuda
