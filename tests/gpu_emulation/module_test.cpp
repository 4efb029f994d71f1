// The module for CUDA on the software GPU: what it refuses, what it frees, and what it does when calls fail.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error_of.h"
#include "gpu_emulation/emulator.h"
#include "gpu_emulation/log.h"
#include "ops/ops.h"
#include "support/host_memory.h"
#include "support/placed.h"

namespace gangway {
namespace {

// Before a test of any suite makes the module read its configuration.
[[maybe_unused]] const int own_kernels = setenv("GANGWAY_CUDNN", "0", 1);

class CudaModule : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
  }
  void TearDown() override {
    gpu_emulation::reset();
    gpu_emulation::set(gpu_emulation::Settings());
    EXPECT_EQ(gpu_emulation::living(), 0);
  }
  static Error refusal(const std::string& name) {
    return test::error_of([&] { make_device(name); });
  }
  static void change(void (*how)(gpu_emulation::Settings&)) {
    gpu_emulation::Settings settings;
    how(settings);
    gpu_emulation::set(settings);
  }
};

TEST_F(CudaModule, ADeviceHasItsNumberAndItsMemory) {
  const auto device = make_device("cuda:3");
  EXPECT_EQ(device->kind(), DeviceKind::cuda);
  EXPECT_EQ(device->name(), "cuda:3");
  EXPECT_EQ(make_device("cuda", {.index = 5})->name(), "cuda:5");
  const Tensor t = Tensor::allocate(device->allocator(), DType::f32, {1000});
  EXPECT_FALSE(t.on_host());
  EXPECT_GE(gpu_emulation::living(), 1);
}

// The handle of the legacy stream is the same on every device. The current device decides which stream it
// means.
TEST_F(CudaModule, TheLegacyStreamIsTheDevicesOwnWhicheverIsCurrent) {
  auto device = make_device("cuda:1");
  gpu_emulation::start_log();
  {
    Tensor t = Tensor::allocate(device->allocator(), DType::f32, {1000});
    Stream& legacy = device->wrap_stream(cudaStreamLegacy);
    EXPECT_EQ(&legacy, &device->wrap_stream(cudaStreamLegacy));
    device->zero(t.raw(), t.bytes(), legacy);
    legacy.synchronize();
  }
  device.reset();
  size_t waits = 0;
  for (const gpu_emulation::Entry& entry : gpu_emulation::take_log()) {
    waits += entry.work == gpu_emulation::Work::host_wait ? 1 : 0;
    EXPECT_EQ(entry.device, 1) << entry.name;
  }
  EXPECT_GE(waits, 2u) << "synchronize, and the end of the stream";
}

TEST_F(CudaModule, TheStreamOfEachThreadIsRefused) {
  const auto device = make_device("cuda");
  for (const Error& error : {test::error_of([&] { device->wrap_stream(cudaStreamPerThread); }),
                             test::error_of([&] { device->order(cudaStreamPerThread); })}) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("stream is cudaStreamPerThread, which is another stream in each thread"),
              std::string::npos)
        << error.message();
  }
}

TEST_F(CudaModule, WhatIsMissingIsNamedWithItsNumbers) {
  const auto expect = [](const std::string& name, Code code, const std::string& words) {
    const Error error = refusal(name);
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  };
  expect("cuda:8", Code::invalid_argument, "device \"cuda:8\": this machine has 8 GPUs, numbered from 0");
  expect("cuda:x", Code::invalid_argument, "device \"cuda:x\" is no device: write cuda or cuda:NUMBER");
  change([](gpu_emulation::Settings& s) { s.driver = 12040; });
  expect("cuda", Code::not_supported,
         "the driver is for CUDA 12.4, older than the 13.0 that this module needs");
  change([](gpu_emulation::Settings& s) { s.driver = 0; });
  expect("cuda", Code::not_supported, "this machine has no NVIDIA driver");
  change([](gpu_emulation::Settings& s) { s.devices = 0; });
  expect("cuda", Code::not_supported, "no GPU can be used");
  change([](gpu_emulation::Settings& s) { s.architecture = 70; });
  expect("cuda", Code::not_supported, "its architecture sm_70 is not among sm_80 and newer");
}

TEST_F(CudaModule, OutOfMemoryNamesTheBytes) {
  change([](gpu_emulation::Settings& s) { s.memory = 1 << 20; });
  const auto device = make_device("cuda");
  const Tensor some = Tensor::allocate(device->allocator(), DType::u8, {1 << 19});
  const Error error = test::error_of([&] { Tensor::allocate(device->allocator(), DType::u8, {600000}); });
  EXPECT_EQ(error.code(), Code::out_of_memory);
  EXPECT_EQ(error.message(), "device cuda:0 has 524288 of 1048576 bytes free: 600000 more are wanted");
}

// A block that is freed while a stream uses it waits for the stream. Then its memory is reused.
TEST_F(CudaModule, AFreedBlockWaitsForTheStreams) {
  const auto device = make_device("cuda");
  const auto ops = make_ops(device);
  const Tensor sum = Tensor::allocate(device->allocator(), DType::f32, {1000});
  ops->fill(sum, 0, device->stream());
  for (int i = 0; i < 50; ++i) {
    const Tensor one = Tensor::allocate(device->allocator(), DType::f32, {1000});
    ops->fill(one, 1, device->stream());
    ops->add(one, 1, sum, device->stream());
  }
  EXPECT_EQ(test::copy_out<float>(sum), std::vector<float>(1000, 50));
}

TEST_F(CudaModule, CudnnIsNotAskedIfTheEnvironmentSaysSo) {
  const auto ops = make_ops(make_device("cuda"));
  EXPECT_EQ(describe_paths(*ops),
            "attention: own kernels; no cuDNN: GANGWAY_CUDNN is 0\n"
            "products: cuBLASLt, the fastest of its algorithms for each shape (GANGWAY_CUDA_TUNING = 1)\n"
            "other operations: own kernels\n");
}

TEST_F(CudaModule, AProgramsCurrentDeviceIsLeftAsItWas) {
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  {
    const auto device = make_device("cuda:1");
    make_ops(device)->fill(Tensor::allocate(device->allocator(), DType::f32, {10}), 1, device->stream());
    device->stream().synchronize();
    int current = -1;
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 2);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

void run_some(const std::shared_ptr<Device>& device) {
  const auto ops = make_ops(device);
  const auto tensor = [&](const Shape& shape) {
    return Tensor::allocate(device->allocator(), DType::f32, shape);
  };
  const Tensor a = tensor({4, 6}), b = tensor({6, 5}), c = tensor({4, 5}),
               out = Tensor::allocate(device->allocator(), DType::f64, {1});
  for (int time = 0; time < 3; ++time) {  // the runs: one by one, captured, as a graph
    ops->fill(a, 1, device->stream());
    ops->fill(b, 2, device->stream());
    ops->gemm({.a = a, .b = b, .c = c, .bias = {}}, device->stream());
    ops->fill(out, 0, device->stream());
    ops->norm_power(c, 2, out, device->stream());
    device->stream().submit();
  }
  const auto other = device->make_stream(StreamPriority::high);
  const auto event = device->make_event();
  event->record(device->stream());
  other->wait(*event);
  other->synchronize();
  static double found;  // static, because a copy may still write to it when the wait for it failed
  device->copy(&found, out.raw(), sizeof(found), device->stream());
  device->stream().synchronize();
  EXPECT_EQ(found, 20 * 12.0 * 12.0);
}

// Whichever call fails, there is an error with a text, nothing leaks, and the next run is right.
TEST_F(CudaModule, EveryCallMayFail) {
  const int64_t before = gpu_emulation::calls("*");
  run_some(make_device("cuda"));
  const int64_t all = gpu_emulation::calls("*") - before;
  EXPECT_GT(all, 30);
  int failed = 0;
  for (int n = 1; n <= all; ++n) {
    gpu_emulation::fail_call("*", n, cudaErrorUnknown);
    try {
      run_some(make_device("cuda"));
    } catch (const Error& error) {
      EXPECT_FALSE(error.message().empty());
      ++failed;
    }
    gpu_emulation::reset();
  }
  EXPECT_GT(failed, all / 2);  // failures of calls that free something are not reported
  run_some(make_device("cuda"));
}

}  // namespace
}  // namespace gangway
