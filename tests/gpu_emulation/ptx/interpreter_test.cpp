// The same kernels from their source and from the PTX that nvcc made of it (sample.cu, sample/sample.ptx) give
// the same, and faults that are planted into them are found in the PTX as well.
#include <cmath>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "gpu_emulation/emulation_testing.h"
#include "gpu_emulation/ptx/compile.h"
#include "gpu_emulation/ptx/kernels.h"
#include "gpu_emulation/ptx/sample.cu"
#include "gpu_emulation/ptx/symbols.h"
#include "support/placed.h"

namespace gangway::cuda {
namespace {

namespace ptx = gpu_emulation::ptx;
using gpu_emulation::start;

class PtxKernels : public gpu_emulation::Emulation {
 protected:
  void TearDown() override {
    ptx::choose("");
    Emulation::TearDown();
  }
  // Runs work that returns values twice, from the source and from PTX, for several orders of threads.
  void expect_same(const std::function<std::vector<float>()>& work, float tolerance) {
    for (uint32_t seed = 0; seed < 3; ++seed) {
      set_seed(seed);
      ptx::choose("");
      const std::vector<float> want = work();
      ptx::choose(placed("@source@/tests/gpu_emulation/ptx/sample"));
      const std::vector<float> got = work();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        if (got[i] == want[i] || (std::isnan(want[i]) && std::isnan(got[i]))) continue;
        ASSERT_NEAR(got[i], want[i], tolerance * std::fabs(want[i])) << "at " << i << ", seed " << seed;
      }
    }
  }
  template <typename... Parameters, typename... Arguments>
  void run(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t shared,
           Arguments... arguments) {
    EXPECT_EQ(start(kernel, blocks, threads, shared, stream_, arguments...), cudaSuccess)
        << gpu_emulation::report();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << gpu_emulation::report();
  }
  template <typename T>
  T* device_of(const std::vector<T>& values) {
    std::vector<float> words((values.size() * sizeof(T) + 3) / 4 + 1);
    if (!values.empty()) std::memcpy(words.data(), values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(device(words));
  }
  template <typename T>
  std::vector<float> floats(const T* data, size_t count) {
    const std::vector<float> words = host(reinterpret_cast<const float*>(data), (count * sizeof(T) + 3) / 4);
    std::vector<T> values(count);
    if (count != 0) std::memcpy(values.data(), words.data(), count * sizeof(T));
    std::vector<float> all;
    for (const T& value : values)
      if constexpr (std::is_arithmetic_v<T>)
        all.push_back(static_cast<float>(value));
      else
        all.push_back(widen(value));
    return all;
  }
};

template <typename T>
std::vector<T> waves(size_t count) {
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(narrow<T>(std::sin(static_cast<float>(i) * 1.7f) * 3.0f));
  return values;
}

TEST_F(PtxKernels, ElementsOf16BitsAreTheSameToTheBit) {
  for (const int64_t count : {0, 1, 8, 9, 1001})
    for (const bool negative : {false, true})
      expect_same(
          [&] {
            Half* const to = device_of(std::vector<Half>(static_cast<size_t>(count)));
            run(scale_kernel, 1, 64, 0,
                Scale{device_of(waves<Bf16>(static_cast<size_t>(count))), to, 1.25, count, negative});
            return floats(to, static_cast<size_t>(count));
          },
          0);
}

TEST_F(PtxKernels, SumsAndMaximaOfABlockAgree) {
  for (const int64_t width : {1, 31, 200}) {
    const auto size = static_cast<size_t>(3 * width);
    expect_same(
        [&] {
          float* const to = device(std::vector<float>(size));
          run(softmax_kernel<float>, 3, 128, 32 * sizeof(float), device(waves<float>(size)), to, width);
          return host(to, size);
        },
        1e-6f);
    expect_same(
        [&] {
          double* const to = device_of(std::vector<double>(size));
          run(softmax_kernel<double>, 3, 64, 32 * sizeof(double), device_of(waves<double>(size)), to, width);
          return floats(to, size);
        },
        0);
  }
}

TEST_F(PtxKernels, FunctionsOfTheMathLibraryAgreeInF64) {
  const std::vector<double> values = {0, 1, 0.3, 1e-310, 7e200, 2, -1.5, INFINITY, NAN};
  for (const double by : {2.0, 0.5, -3.25, 0.0})
    expect_same(
        [&] {
          double* const to = device_of(std::vector<double>(values.size()));
          run(power_kernel, 2, 32, 0, device_of(values), to, by, static_cast<int>(values.size()));
          return floats(to, values.size());
        },
        1e-7f);
}

TEST_F(PtxKernels, VotesAndAtomicsCountTheSame) {
  std::vector<int64_t> values;
  for (int i = 0; i < 77; ++i) values.push_back(i * i % 23);
  expect_same(
      [&] {
        int* const counts = device_of(std::vector<int>(8));
        run(count_kernel, 1, 32, 0, device_of(values), counts, 77, 7);
        return floats(counts, 8);
      },
      0);
}

TEST_F(PtxKernels, ProductsOfTensorCoresAgreeButForApproximations) {
  const auto check = [&](auto type, auto* kernel) {
    using T = decltype(type);
    for (const bool second : {false, true})
      expect_same(
          [&] {
            float* const to = device(std::vector<float>(128));
            run(kernel, 1, 32, 1024, device_of(waves<T>(256)), device_of(waves<T>(256)), to, second);
            return host(to, 128);
          },
          0x1p-21f);
  };
  check(Bf16{}, product_kernel<Bf16>);
  check(Half{}, product_kernel<Half>);
}

TEST_F(PtxKernels, ARaceOfTheCompiledCodeIsAFault) {
  ptx::choose(placed("@source@/tests/gpu_emulation/ptx/sample"));
  ASSERT_EQ(start(race_kernel, 1, 64, 256, stream_, device(std::vector<float>(64))), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, " of shared memory, which block (0, 0, 0), thread (");
  gpu_emulation::reset();
  ASSERT_EQ(start(two_blocks_kernel, 2, 32, 0, stream_, device({0})), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "race: writes byte 0 of a block of 4 bytes");
}

TEST_F(PtxKernels, AWarpThatHasFewerThreadsThanAnInstructionReadsIsAFault) {
  ptx::choose(placed("@source@/tests/gpu_emulation/ptx/sample"));
  float* const data = device(std::vector<float>(256));
  ASSERT_EQ(start(softmax_kernel<float>, 1, 31, 32 * sizeof(float), stream_, data, data, int64_t{31}),
            cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "which has ended or does not exist, shfl at sample.ptx:");
  gpu_emulation::reset();
  ASSERT_EQ(start(product_kernel<Bf16>, 1, 31, 1024, stream_, device_of(waves<Bf16>(256)),
                  device_of(waves<Bf16>(256)), data, true),
            cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "a thread of its warp has ended or does not exist, ");
}

TEST_F(PtxKernels, AnAddressThatIsNotAlignedIsAFaultWithItsLine) {
  ptx::choose(placed("@source@/tests/gpu_emulation/ptx/sample"));
  ASSERT_EQ(start(misaligned_kernel, 1, 1, 0, stream_, device(std::vector<float>(8)) + 1), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "has an address that is not aligned, an access at sample.ptx:");
}

TEST_F(PtxKernels, AccessesBeyondSharedAndDeviceMemoryAreFaults) {
  ptx::choose(placed("@source@/tests/gpu_emulation/ptx/sample"));
  run(beyond_shared_kernel, 1, 16, 64, device({0}), 0);
  for (const int at : {1, -1}) {
    ASSERT_EQ(start(beyond_shared_kernel, 1, 16, 64, stream_, device({0}), at), cudaSuccess);
    expect_fault(cudaErrorLaunchFailure, "reaches beyond the shared memory of its block");
    gpu_emulation::reset();
  }
  ASSERT_EQ(start(beyond_global_kernel, 1, 1, 0, stream_, device(std::vector<float>(64)), 64), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress, "0 bytes beyond a block of 256 bytes");
}

void not_in_the_ptx(float* data) { *data = 1; }
TEST_F(PtxKernels, ALaunchThatThePtxDoesNotAllowIsRefusedInWords) {
  ptx::choose(placed("@source@/tests/gpu_emulation/ptx/sample"));
  const auto refused = [&](cudaError_t error, const std::string& words) {
    EXPECT_EQ(error, cudaErrorInvalidValue);
    EXPECT_NE(gpu_emulation::report().find(words), std::string::npos) << gpu_emulation::report();
    gpu_emulation::reset();
  };
  float* const data = device(std::vector<float>(65));
  run(bounded_kernel, 1, 64, 0, data);
  refused(start(bounded_kernel, 1, 65, 0, stream_, data),
          "65 threads in a block, and it was compiled for at most 64");
  refused(start(not_in_the_ptx, 1, 1, 0, stream_, data), "has this kernel");
}

TEST(PtxText, WhatIsNotUnderstoodIsToldWithItsLine) {
  const auto expect = [](const std::string& text, const std::string& words) {
    try {
      ptx::compile(ptx::parse_source("a.ptx", text), "k");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  expect(".entry k()\n{\n\tret;\n\tadd.rp.f32 %f1, %f2, %f3;\n}\n",
         "a.ptx:4: an instruction that the interpreter does not know: add.rp.f32");
  expect(".entry k()\n{\nbra $L;\n}\n", "no label $L");
  expect(".entry k()\n{\nmax.NaN.f32 %f1, %f2, %f3;\n}\n", "does not know: max.NaN.f32");
  expect(".entry k()\n{\nmov.u32 %r1, %warpid;\n}\n",
         "special register that the interpreter does not know: %warpid");
  expect(".entry k()\n{\nld.param.u32 %r1, [p];\n}\n", "a.ptx:3: no parameter p");
  expect(".entry k()\n{\n", "a function does not end");
  expect(".entry j()\n{\n}\n", "no function k");
  expect(".tex k;", "nothing is known of \".tex k\"");
}

TEST(PtxText, NamesOfUnnamedNamespacesAreTheSameForBothCompilers) {
  EXPECT_EQ(ptx::common_name("_ZN1a4cuda45_GLOBAL__N__b0038921_12_adafactor_cu_0c0ea88811step_kernelIdEEv"),
            ptx::common_name("_ZN1a4cuda12_GLOBAL__N_111step_kernelIdEEv"));
  EXPECT_EQ(ptx::common_name("_ZN1a1kIdEEvPNSt11conditionalIX9is_same_vIS3_dEEdfE4typeElll"),
            ptx::common_name("_ZN1a1kIdEEvPNSt11conditionalIL_ZSt9is_same_vEdfE4typeElll"));
  EXPECT_EQ(ptx::common_name("plain"), "plain");
}

}  // namespace
}  // namespace gangway::cuda
