// The software GPU catches each kind of mistake. Each test says how.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "gpu_emulation/emulation_testing.h"
#include "gpu_emulation/sanitizer.h"

namespace {

using gpu_emulation::Emulation;
using gpu_emulation::start;

constexpr unsigned kFull = 0xffffffffu;

void rotate(float* data) {
  float* const values = static_cast<float*>(gpu_emulation::shared_memory());
  values[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}
void rotate_without_barrier(float* data) {
  float* const values = static_cast<float*>(gpu_emulation::shared_memory());
  values[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

std::vector<float> ascending(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST_F(Emulation, ABarrierOrdersAllThreadsOfABlockForEverySeed) {
  for (uint32_t seed = 0; seed < 12; ++seed)
    for (const unsigned threads : {1u, 32u, 33u, 256u}) {
      set_seed(seed);
      float* const data = device(ascending(threads));
      ASSERT_EQ(start(rotate, 1, threads, threads * 4, stream_, data), cudaSuccess);
      const std::vector<float> got = host(data, threads);
      for (unsigned i = 0; i < threads; ++i) ASSERT_EQ(got[i], static_cast<float>((i + 1) % threads)) << seed;
    }
}

// The order of threads shows it: some seed gives another result.
TEST_F(Emulation, AMissingBarrierShowsForEverySeed) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    set_seed(seed);
    float* const data = device(ascending(64));
    ASSERT_EQ(start(rotate_without_barrier, 1, 64, 256, stream_, data), cudaSuccess);
    std::vector<float> want = ascending(64);
    std::rotate(want.begin(), want.begin() + 1, want.end());
    EXPECT_NE(host(data, 64), want) << seed;
  }
}

void last_one_wins(float* to) { *to = static_cast<float>(blockIdx.x * blockDim.x + threadIdx.x); }

// The order of blocks and threads shows it.
TEST_F(Emulation, AKernelThatLeansOnAnOrderDiffersBetweenSeeds) {
  std::vector<float> found;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    set_seed(seed);
    float* const to = device({-1});
    ASSERT_EQ(start(last_one_wins, 3, 40, 0, stream_, to), cudaSuccess);
    found.push_back(host(to, 1)[0]);
  }
  EXPECT_EQ(found[0], 119);
  EXPECT_EQ(found[1], 0);
  EXPECT_NE(found[2], found[3]);
}

void warp_sum(const float* x, float* sums) {
  float sum = x[blockIdx.x * 32 + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kFull, sum, distance);
  const unsigned odd = __ballot_sync(kFull, threadIdx.x % 2);
  if (threadIdx.x == 0) sums[blockIdx.x] = odd == 0xaaaaaaaau ? sum : -1;
  if (__shfl_sync(kFull, sum, 7) != sum) sums[blockIdx.x] = -2;
}

TEST_F(Emulation, ExchangesWithinAWarpGiveTheSameForEverySeed) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    set_seed(seed);
    float* const x = device(ascending(96));
    float* const sums = device({0, 0, 0});
    ASSERT_EQ(start(warp_sum, 3, 32, 0, stream_, x, sums), cudaSuccess);
    EXPECT_EQ(host(sums, 3), (std::vector<float>{496, 496 + 1024, 496 + 2048})) << seed;
  }
}

void shared_ends(float* out, int index) {
  float* const shared = static_cast<float*>(gpu_emulation::shared_memory());
  if (threadIdx.x == 0) out[0] = shared[0];
  shared[static_cast<int>(threadIdx.x) + index] = 1;
}

TEST_F(Emulation, SharedMemoryBeginsAsNan) {
  float* const out = device({0});
  ASSERT_EQ(start(shared_ends, 1, 16, 64, stream_, out, 0), cudaSuccess);
  EXPECT_TRUE(std::isnan(host(out, 1)[0]));
}

// The protected page behind shared memory shows it.
TEST_F(Emulation, SharedMemoryBeyondItsEndIsAFault) {
  ASSERT_EQ(start(shared_ends, 1, 16, 64, stream_, device({0}), 1), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress, "block (0, 0, 0), thread (15, 0, 0)");
}

// Writes at an address that is computed as a number, because a sanitizer refuses such arithmetic on pointers.
void write_at(float* data, int64_t index) {
  *reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(data) +
                            static_cast<uintptr_t>(index) * sizeof(float)) = 1;
}

// The protected page behind a block shows it.
TEST_F(Emulation, AnAccessBeyondABlockIsAFaultWithItsPlace) {
  gpu_emulation::name_next_kernel("write_at");
  ASSERT_EQ(start(write_at, 1, 1, 0, stream_, device(std::vector<float>(64)), int64_t{65}), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress,
               "kernel write_at, block (0, 0, 0), thread (0, 0, 0): 4 bytes beyond a block of 256 bytes");
  EXPECT_EQ(start(write_at, 1, 1, 0, stream_, blocks_[0], int64_t{0}), cudaErrorIllegalAddress);
}

// The pages of the block, which stay protected, show it.
TEST_F(Emulation, AnAccessToAFreedBlockIsAFault) {
  float* const data = device(std::vector<float>(8));
  blocks_.clear();
  ASSERT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
  ASSERT_EQ(start(write_at, 1, 1, 0, stream_, data, int64_t{3}), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress, "12 bytes into a block of 32 bytes that was freed");
}

TEST_F(Emulation, ANullPointerInAKernelIsAFault) {
  ASSERT_EQ(start(write_at, 1, 1, 0, stream_, static_cast<float*>(nullptr), int64_t{3}), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress, "is no memory of a device");
}

// A check of the words of the arguments shows it.
TEST_F(Emulation, PlainMemoryOfTheHostAsAnArgumentIsAFault) {
#if !__has_builtin(__builtin_clear_padding)
  GTEST_SKIP() << "this compiler cannot clear what lies between members, so no argument is looked at";
#endif
  std::vector<float> here(8);
  EXPECT_EQ(start(write_at, 1, 1, 0, stream_, here.data(), int64_t{0}), cudaErrorIllegalAddress);
  EXPECT_NE(gpu_emulation::report().find("plain memory of the host"), std::string::npos);
}

// Protected pages show it.
TEST_F(Emulation, HostCodeThatReadsDeviceMemoryEndsTheProgram) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        volatile float* const data = device(std::vector<float>(8));
        static_cast<void>(data[1] == 0);
      },
      "host code touches device memory: 4 bytes into a block of 32 bytes");
}

TEST_F(Emulation, AWriteJustBeyondABlockIsFoundWhenTheBlockIsFreed) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        float* const data = device(std::vector<float>(8));
        start(write_at, 1, 1, 0, stream_, data, int64_t{8});
        cudaFreeAsync(data, stream_);
        cudaStreamSynchronize(stream_);
      },
      "a block of 32 bytes was written at byte 32");
}

void two_barriers(int) {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncthreads();
}
void barrier_beside_exchange(int) {
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __shfl_sync(kFull, 1, 0);
}

// The lines at which threads wait show it.
TEST_F(Emulation, ThreadsThatWaitAtDifferentLinesAreAFault) {
  ASSERT_EQ(start(two_barriers, 1, 64, 0, stream_, 0), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "divergence");
}
TEST_F(Emulation, ABarrierBesideAnExchangeIsAFault) {
  ASSERT_EQ(start(barrier_beside_exchange, 1, 32, 0, stream_, 0), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "divergence");
}

// Thread 5 ends at once.
void read_a_lane(float* to, int from) {
  if (threadIdx.x == 5) return;
  to[threadIdx.x] = __shfl_sync(kFull, 1.0f, from);
}
void read_the_neighbour(float* to, int) { to[threadIdx.x] = __shfl_xor_sync(kFull, 1.0f, 1); }
TEST_F(Emulation, AShuffleFromALaneThatHasEndedOrDoesNotExistIsAFaultForEverySeed) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    set_seed(seed);
    float* const to = device(std::vector<float>(32));
    ASSERT_EQ(start(read_a_lane, 1, 32, 0, stream_, to, 6), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << gpu_emulation::report();
    ASSERT_EQ(start(read_a_lane, 1, 32, 0, stream_, to, 5), cudaSuccess);
    expect_fault(cudaErrorLaunchFailure, "reads lane 5, which has ended or does not exist, __shfl_sync at ");
    gpu_emulation::reset();
    ASSERT_EQ(start(read_the_neighbour, 1, 32, 0, stream_, to, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << gpu_emulation::report();
    ASSERT_EQ(start(read_the_neighbour, 1, 31, 0, stream_, to, 0), cudaSuccess);
    expect_fault(cudaErrorLaunchFailure,
                 "reads lane 31, which has ended or does not exist, __shfl_xor_sync at ");
    gpu_emulation::reset();
  }
}

void slow_fill(float* data, int count) {
  for (int i = 0; i < count; ++i) data[i] = 1;
}

// Returns in how many rounds a copy on another stream got values from before the kernel that fills them.
int early_copies(cudaStream_t filling, cudaStream_t copying, cudaEvent_t event, float* data) {
  int early = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<float> got(1000, 0);
    cudaMemcpyAsync(data, got.data(), 4000, cudaMemcpyDefault, filling);
    cudaStreamSynchronize(filling);
    start(slow_fill, 1, 1, 0, filling, data, 1000);
    if (event != nullptr) {
      cudaEventRecord(event, filling);
      cudaStreamWaitEvent(copying, event, 0);
    }
    cudaMemcpyAsync(got.data(), data, 4000, cudaMemcpyDefault, copying);
    cudaStreamSynchronize(copying);
    cudaStreamSynchronize(filling);
    early += got[999] != 1;
  }
  return early;
}

// Streams that run late show it: the copy gets old values in some rounds, and never if it waits for an event.
// The thread sanitizer finds the race itself and ends the program.
TEST_F(Emulation, ACopyWithoutAnEventShowsForSomeSeed) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  float* const data = device(std::vector<float>(1000));
#if defined(GPU_EMULATION_THREAD)
  EXPECT_EXIT(
      {
        early_copies(stream_, other, nullptr, data);
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
#else
  EXPECT_GT(early_copies(stream_, other, nullptr, data), 0);
#endif
  EXPECT_EQ(early_copies(stream_, other, event, data), 0);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(Emulation, ABlockThatADestroyedStreamStillFreesCountsAsGivenBack) {
  cudaStream_t other = nullptr;
  void* data = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&data, 4'000'000, other), cudaSuccess);
  ASSERT_EQ(start(slow_fill, 1, 1, 0, other, static_cast<float*>(data), 1'000'000), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(data, other), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(gpu_emulation::living(), 1);  // stream_
}

TEST_F(Emulation, ACallFailsWhenItIsAskedTo) {
  gpu_emulation::fail_call("cudaMallocAsync", 2, cudaErrorMemoryAllocation);
  void* data = nullptr;
  device({1});
  EXPECT_EQ(cudaMallocAsync(&data, 4, stream_), cudaErrorMemoryAllocation);
  device({2});
}

TEST_F(Emulation, AnAllocationBeyondTheMemoryFails) {
  gpu_emulation::Settings settings = gpu_emulation::settings();
  settings.memory = 1000;
  gpu_emulation::set(settings);
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, 1001, stream_), cudaErrorMemoryAllocation);
  settings.memory = uint64_t{4} << 30;
  gpu_emulation::set(settings);
}

TEST_F(Emulation, WorkForAStreamOfAnotherDeviceIsRefused) {
  float* const data = device({1});
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(start(write_at, 1, 1, 0, stream_, data, int64_t{0}), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Emulation, TheNullStreamIsRefused) {
  EXPECT_EQ(start(write_at, 1, 1, 0, nullptr, device({1}), int64_t{0}), cudaErrorInvalidResourceHandle);
}

// The legacy stream runs late like any other stream, in its own order, and each device has its own.
TEST_F(Emulation, TheLegacyStreamOfEachDeviceExistsByItsHandleWithoutBeingCreated) {
  const int64_t before = gpu_emulation::living();
  float* const data = device({1, 2});
  float got[2] = {};
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 0, sizeof(float), cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream_, event, 0), cudaSuccess);
  EXPECT_EQ(host(data, 2), (std::vector<float>{0, 2}));
  ASSERT_EQ(cudaMemcpyAsync(got, data, sizeof(got), cudaMemcpyDefault, cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(got[1], 2.0f);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, cudaStreamLegacy), cudaErrorInvalidResourceHandle)
      << "an event of device 0";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamDestroy(cudaStreamLegacy), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(gpu_emulation::living(), before + 1) << "the block that the test gives back at its end";
}

void add_all(int* sum) { atomicAdd(sum, 1); }

TEST_F(Emulation, AtomicAdditionsOfTwoStreamsAreAllThere) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0), cudaSuccess);
  float* const sum = device({0});
  for (const cudaStream_t stream : {stream_, other})
    ASSERT_EQ(start(add_all, 4, 128, 0, stream, reinterpret_cast<int*>(sum)), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  const float got = host(sum, 1)[0];
  int count = 0;
  std::memcpy(&count, &got, 4);
  EXPECT_EQ(count, 1024);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// Compares every bit pattern with the definition.
TEST(SixteenBits, HalfIsItsDefinition) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const __half half{static_cast<uint16_t>(bits)};
    const float value = __half2float(half);
    const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    double want = exponent == 31  ? INFINITY
                  : exponent == 0 ? std::ldexp(mantissa, -24)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
    if (bits >= 0x8000) want = -want;
    ASSERT_EQ(static_cast<double>(value), want) << bits;
    ASSERT_EQ(__float2half_rn(value).bits, bits);
    if (exponent == 31) continue;
    // A number half way to the next one is rounded to the even one of the two.
    const float next = __half2float({static_cast<uint16_t>(bits + 1)});
    if (!std::isfinite(next)) continue;
    ASSERT_EQ(__float2half_rn((value + next) / 2).bits & 1, 0) << bits;
  }
}

}  // namespace
