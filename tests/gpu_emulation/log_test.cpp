// The log of the work on streams, and the modelled mode.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "gpu_emulation/emulator.h"
#include "gpu_emulation/log.h"

namespace gpu_emulation {
namespace {

void count_kernel(int* total) { atomicAdd(total, 1); }

cudaError_t launch_count(unsigned blocks, int* total, cudaStream_t stream) {
  name_next_kernel("count");
  void* arguments[] = {&total};
  return cudaLaunchKernel(count_kernel, dim3(blocks), dim3(256), arguments, 0, stream);
}

class Log : public testing::Test {
 protected:
  void SetUp() override {
    Settings with = settings();
    with.modelled = true;
    with.seed = 0;
    set(with);
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithPriority(&other_, cudaStreamNonBlocking, 0), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    cudaEventDestroy(event_);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    EXPECT_EQ(report(), "");
  }
  template <typename T>
  T* allocate(size_t count) {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocAsync(&data, count * sizeof(T), stream_), cudaSuccess);
    return static_cast<T*>(data);
  }
  int read(const int* from) {
    void* pinned = nullptr;
    EXPECT_EQ(cudaHostAlloc(&pinned, sizeof(int), 0), cudaSuccess);
    cudaMemcpyAsync(pinned, from, sizeof(int), cudaMemcpyDefault, stream_);
    cudaStreamSynchronize(stream_);
    const int value = *static_cast<int*>(pinned);
    cudaFreeHost(pinned);
    return value;
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

TEST_F(Log, HoldsWhatWasPutOnStreamsInTheOrderOfTheCalls) {
  int* const total = allocate<int>(1);
  start_log();
  cudaMemsetAsync(total, 0, sizeof(int), stream_);
  launch_count(2, total, stream_);
  cudaEventRecord(event_, stream_);
  cudaStreamWaitEvent(other_, event_, 0);
  cudaEventSynchronize(event_);
  const std::vector<Entry> log = take_log();
  launch_count(2, total, stream_);
  ASSERT_EQ(log.size(), 5u);
  EXPECT_EQ(log[0].work, Work::set);
  EXPECT_EQ(log[0].bytes, 4);
  EXPECT_EQ(log[1].work, Work::kernel);
  EXPECT_EQ(log[1].name, "count");
  EXPECT_EQ(log[1].grid.x, 2u);
  EXPECT_FALSE(log[1].costed);
  EXPECT_EQ(log[2].work, Work::record);
  EXPECT_EQ(log[3].work, Work::wait);
  EXPECT_EQ(log[3].event, log[2].event);
  EXPECT_NE(log[3].stream, log[2].stream);
  EXPECT_EQ(log[4].work, Work::host_wait);
  EXPECT_EQ(log[4].event, log[2].event);
  cudaFreeAsync(total, stream_);
}

TEST_F(Log, HasTheCostsThatWereAnnouncedForALaunchOrForEachBlock) {
  int* const total = allocate<int>(1);
  start_log();
  expect_costs({{"count", 3, 5}});
  launch_count(2, total, stream_);
  launch_count(2, total, stream_);
  expect_costs({{"count", 3, 5, true}});
  launch_count(2, total, stream_);
  expect_costs({});
  const std::vector<Entry> log = take_log();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0].bytes, 5);
  EXPECT_EQ(log[1].bytes, 0);
  EXPECT_TRUE(log[1].costed);
  EXPECT_EQ(log[2].flops, 6);
  cudaFreeAsync(total, stream_);
}

TEST_F(Log, ModelledASmallKernelRunsAndALargeOneDoesNot) {
  int* const total = allocate<int>(1);
  EXPECT_EQ(read(total), 0);  // memory reads as zeros
  launch_count(2, total, stream_);
  EXPECT_EQ(read(total), 512);
  launch_count(kThreadsDone / 256 + 1, total, stream_);
  EXPECT_EQ(read(total), 512);
  cudaFreeAsync(total, stream_);
}

TEST_F(Log, ModelledLargeMemsetsAreLeftOut) {
  int* const numbers = allocate<int>(2 * kBytesDone);
  cudaMemsetAsync(numbers, 1, kBytesDone + 4, stream_);
  EXPECT_EQ(read(numbers), 0);
  cudaMemsetAsync(numbers, 1, kBytesDone, stream_);
  EXPECT_EQ(read(numbers), 0x01010101);
  cudaFreeAsync(numbers, stream_);
}

}  // namespace
}  // namespace gpu_emulation
