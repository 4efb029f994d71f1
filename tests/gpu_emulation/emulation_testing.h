// A fixture for tests of the software GPU itself, and a way to start kernels like those of a module.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include <cuda_runtime.h>
#include "gpu_emulation/emulator.h"

namespace gpu_emulation {

template <typename... Parameters, typename... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                  Arguments... arguments) {
  std::tuple<Parameters...> values(arguments...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        return cudaLaunchKernel(kernel, grid, block, pointers, shared, stream);
      },
      values);
}

class Emulation : public testing::Test {
 protected:
  void SetUp() override {
    set_seed(2);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamSynchronize(stream_);
    reset();
    for (float* const data : blocks_) EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(living(), 0);
  }
  static void set_seed(uint32_t seed) {
    Settings settings = gpu_emulation::settings();
    settings.seed = seed;
    set(settings);
  }

  float* device(const std::vector<float>& values) {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocAsync(&data, values.size() * sizeof(float), stream_), cudaSuccess);
    blocks_.push_back(static_cast<float*>(data));
    EXPECT_EQ(cudaMemcpyAsync(data, values.data(), values.size() * sizeof(float), cudaMemcpyDefault, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return blocks_.back();
  }
  std::vector<float> host(const float* data, size_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), data, count * sizeof(float), cudaMemcpyDefault, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return values;
  }
  // Expects that the work of the stream ends with this fault, and that the report contains `words`.
  void expect_fault(cudaError_t code, const std::string& words) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), code);
    EXPECT_NE(report().find(words), std::string::npos) << report();
    EXPECT_EQ(cudaStreamQuery(stream_), code) << "a fault stays";
  }

  cudaStream_t stream_ = nullptr;
  std::vector<float*> blocks_;
};

}  // namespace gpu_emulation
