// Capture and graphs of the software GPU: when captured work runs, and which calls get which error code.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <tuple>

#include <cuda_runtime.h>
#include "gpu_emulation/emulator.h"

namespace {

void add_to(float* data, float value) { data[threadIdx.x] += value; }

class Capture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    void* data = nullptr;
    ASSERT_EQ(cudaMallocAsync(&data, 8 * sizeof(float), stream_), cudaSuccess);
    data_ = static_cast<float*>(data);
    ASSERT_EQ(cudaMemsetAsync(data_, 0, 8 * sizeof(float), stream_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFreeAsync(data_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(gpu_emulation::living(), 0);
    gpu_emulation::reset();
  }
  cudaError_t add(float value) {
    float* data = data_;
    void* arguments[] = {&data, &value};
    return cudaLaunchKernel(add_to, dim3(1), dim3(8), arguments, 0, stream_);
  }
  cudaError_t begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    return cudaStreamBeginCapture(stream_, mode);
  }
  cudaGraphExec_t executable(cudaGraph_t graph) {
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return made;
  }
  float value() {
    float got[8];
    EXPECT_EQ(cudaMemcpyAsync(got, data_, sizeof(got), cudaMemcpyDefault, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return got[7];
  }
  cudaStreamCaptureStatus status() {
    cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream_, &found), cudaSuccess);
    return found;
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  float* data_ = nullptr;
};

TEST_F(Capture, CapturedWorkRunsWithEachLaunchAndNotBefore) {
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  ASSERT_EQ(add(1), cudaSuccess);
  ASSERT_EQ(add(2), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  EXPECT_EQ(value(), 0);
  const cudaGraphExec_t both = executable(graph);
  EXPECT_EQ(value(), 0);
  ASSERT_EQ(cudaGraphLaunch(both, stream_), cudaSuccess);
  EXPECT_EQ(value(), 3);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(both, stream_), cudaSuccess);
  // As in CUDA, a running graph continues.
  EXPECT_EQ(cudaGraphExecDestroy(both), cudaSuccess);
  EXPECT_EQ(value(), 12);
  EXPECT_EQ(cudaGraphLaunch(both, stream_), cudaErrorInvalidValue);
}

TEST_F(Capture, ACallThatCannotBeCapturedIsRefusedAndEndsTheCapture) {
  float here[8];
  void* block = nullptr;
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  const std::tuple<const char*, cudaError_t, std::function<cudaError_t()>> calls[] = {
      {"a wait", cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream_); }},
      {"a question", cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(stream_); }},
      {"a copy to plain memory", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMemcpyAsync(here, data_, sizeof(here), cudaMemcpyDefault, stream_); }},
      {"an allocation", cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMallocAsync(&block, 8, stream_); }},
      {"pinned memory", cudaErrorStreamCaptureUnsupported, [&] { return cudaHostAlloc(&block, 8, 0); }},
      {"a question for an event", cudaErrorStreamCaptureUnsupported, [&] { return cudaEventQuery(event_); }},
      {"an event from outside", cudaErrorStreamCaptureIsolation,
       [&] { return cudaStreamWaitEvent(stream_, event_, 0); }},
  };
  for (const auto& [name, code, call] : calls) {
    ASSERT_EQ(begin(), cudaSuccess) << name;
    ASSERT_EQ(add(1), cudaSuccess) << name;
    EXPECT_EQ(call(), code) << name;
    EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated) << name;
    EXPECT_EQ(add(1), cudaErrorStreamCaptureInvalidated) << name;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated) << name;
    EXPECT_EQ(graph, nullptr) << name;
    EXPECT_EQ(value(), 0) << name;
  }
}

TEST_F(Capture, AnEventOfACaptureCannotBeQueried) {
  ASSERT_EQ(begin(), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

TEST_F(Capture, TheCaptureModeDecidesWhichThreadsCallsInvalidateIt) {
  const auto ask_elsewhere = [&] {
    cudaError_t error = cudaSuccess;
    std::thread([&] { error = cudaEventSynchronize(event_); }).join();
    return error;
  };
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(begin(cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(ask_elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(begin(cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(ask_elsewhere(), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Capture, BeginAndEndBelongTogether) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(begin(), cudaErrorIllegalState);
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(begin(), cudaSuccess);
  gpu_emulation::fail_call("cudaStreamEndCapture", 1, cudaErrorUnknown);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorUnknown);
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
}

// A graph that is not destroyed counts as a leak.
TEST_F(Capture, GraphsCountAsLiving) {
  const int64_t before = gpu_emulation::living();
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(gpu_emulation::living(), before + 1);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(gpu_emulation::living(), before + 1);
  const cudaGraphExec_t made = executable(graph);
  EXPECT_EQ(gpu_emulation::living(), before + 1);
  EXPECT_EQ(cudaGraphExecDestroy(made), cudaSuccess);
  EXPECT_EQ(gpu_emulation::living(), before);
}

}  // namespace
