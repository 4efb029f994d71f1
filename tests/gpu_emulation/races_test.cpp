// Races that are planted into small kernels are found, and correct kernels are not accused. The kernels of
// this file are compiled with -fsanitize=thread, so that they tell of their accesses.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "gpu_emulation/emulation_testing.h"
#include "gpu_emulation/traffic.h"

namespace {

using gpu_emulation::Emulation;
using gpu_emulation::start;
using gpu_emulation::take_warps;
using gpu_emulation::WarpTraffic;
using gpu_emulation::watch_warps;

float* shared() { return static_cast<float*>(gpu_emulation::shared_memory()); }
int thread() { return static_cast<int>(threadIdx.x); }

class Races : public Emulation {
 protected:
  template <typename... Parameters, typename... Arguments>
  void expect_race(const std::string& words, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                   Arguments... arguments) {
    for (uint32_t seed = 0; seed < 6; ++seed) {
      set_seed(seed);
      ASSERT_EQ(start(kernel, blocks, threads, 4096, stream_, arguments...), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure) << "seed " << seed;
      EXPECT_NE(gpu_emulation::report().find(words), std::string::npos) << gpu_emulation::report();
      gpu_emulation::reset();
    }
  }
  template <typename... Parameters, typename... Arguments>
  void expect_none(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, Arguments... arguments) {
    for (uint32_t seed = 0; seed < 6; ++seed) {
      set_seed(seed);
      ASSERT_EQ(start(kernel, blocks, threads, 4096, stream_, arguments...), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << gpu_emulation::report();
    }
  }
};

template <bool barrier>
void rotate(float* data) {
  shared()[thread()] = data[thread()];
  if (barrier) __syncthreads();
  data[thread()] = shared()[(thread() + 1) % static_cast<int>(blockDim.x)];
}
TEST_F(Races, AMissingBarrierOfABlockIsFoundForEveryOrder) {
  for (const unsigned threads : {2u, 33u, 256u}) {
    expect_race(" of shared memory, which block (0, 0, 0), thread (", rotate<false>, 1, threads,
                device(std::vector<float>(threads)));
    expect_none(rotate<true>, 1, threads, device(std::vector<float>(threads)));
  }
  expect_none(rotate<false>, 1, 1, device({0}));
}

// The second round writes what slower threads may not have read yet.
template <bool barrier>
void two_rounds(float* data) {
  for (int round = 0; round < 2; ++round) {
    shared()[thread()] = data[thread()];
    __syncthreads();
    data[thread()] = shared()[(thread() + 1) % static_cast<int>(blockDim.x)];
    if (barrier) __syncthreads();
  }
}
TEST_F(Races, ABufferThatIsReusedWithoutABarrierIsFound) {
  expect_race(" has ", two_rounds<false>, 1, 64, device(std::vector<float>(64)));
  expect_none(two_rounds<true>, 1, 64, device(std::vector<float>(64)));
}

enum class Order { none, shuffle, warp_barrier };
template <Order order>
void swap_in_warp(float* data) {
  shared()[thread()] = 1;
  if (order == Order::shuffle) __shfl_xor_sync(0xffffffffu, 1, 1);
  if (order == Order::warp_barrier) __syncwarp();
  data[thread()] = shared()[thread() ^ 1];
}
TEST_F(Races, TheThreadsOfAWarpAreOrderedBySyncwarpButNotByAShuffle) {
  float* const data = device(std::vector<float>(64));
  expect_race(" of shared memory", swap_in_warp<Order::none>, 1, 64, data);
  expect_race(" of shared memory", swap_in_warp<Order::shuffle>, 1, 64, data);
  expect_none(swap_in_warp<Order::warp_barrier>, 1, 64, data);
}

void swap_warps(float* data) {
  shared()[thread()] = 1;
  __syncwarp();
  data[thread()] = shared()[thread() ^ 32];
}
TEST_F(Races, WarpsAreNotOrderedBySyncwarp) {
  expect_race(" of shared memory", swap_warps, 1, 64, device(std::vector<float>(64)));
}

void write_one(float* data) {
  if (thread() == 0) data[3] = 1;
}
TEST_F(Races, TwoBlocksThatWriteOneElementAreFoundWithBothBlocksAndTheByte) {
  float* const data = device(std::vector<float>(4));
  ASSERT_EQ(start(write_one, 2, 32, 0, stream_, data), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  const std::string report = gpu_emulation::report();
  for (const char* const words : {"block (0, 0, 0)", "block (1, 0, 0)",
                                  "thread (0, 0, 0): race: writes byte 12 "
                                  "of a block of 16 bytes, which block (",
                                  " has written"})
    EXPECT_NE(report.find(words), std::string::npos) << report;
  gpu_emulation::reset();
  expect_none(write_one, 1, 32, data);
}

void read_of_the_next_block(float* data) {
  const unsigned next = (blockIdx.x + 1) % gridDim.x;
  if (thread() == 0) data[blockIdx.x] = 1;
  __syncthreads();
  if (thread() == 0) data[gridDim.x + blockIdx.x] = data[next];
}
TEST_F(Races, ABlockThatReadsWhatAnotherWritesIsFound) {
  expect_race(" of a block of 24 bytes", read_of_the_next_block, 3, 32, device(std::vector<float>(6)));
  expect_none(read_of_the_next_block, 1, 32, device(std::vector<float>(2)));
}

template <bool atomic>
void count(int* sum) {
  if (atomic)
    atomicAdd(sum, 1);
  else
    *sum += 1;
}
void count_and_read(int* sum, float* out) {
  atomicAdd(sum, 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(*sum);
}
TEST_F(Races, AtomicsDoNotRaceWithEachOtherButWithOtherAccesses) {
  int* const sum = reinterpret_cast<int*>(device({0}));
  expect_none(count<true>, 3, 64, sum);
  expect_race(" of a block of 4 bytes", count<false>, 1, 2, sum);
  expect_race(" with no barrier between", count_and_read, 1, 64, sum, device(std::vector<float>(64)));
  expect_race(" has ", count_and_read, 2, 1, sum, device(std::vector<float>(64)));
}

// Lanes 0 and `other` count; then lane `other` reads, after whatever orders its own warp.
void count_and_read_in_warp(int* sum, float* out, int other) {
  if (thread() == 0) atomicAdd(sum, 1);
  __syncwarp();
  if (thread() == other) atomicAdd(sum, 1);
  __syncwarp();
  if (thread() == other) out[0] = static_cast<float>(*sum);
}
void write_and_count(int* sum, int other) {
  if (thread() == 0) *sum = 1;
  __syncwarp();
  if (thread() == 1 || thread() == 2) atomicAdd(sum, 1);
  __syncwarp();
  if (thread() == other) atomicAdd(sum, 1);
}
TEST_F(Races, AReadAfterAnAtomicOfItsOwnRacesWithTheAtomicsOfOtherWarps) {
  int* const sum = reinterpret_cast<int*>(device({0}));
  float* const out = device({0});
  expect_race(" of a block of 4 bytes", count_and_read_in_warp, 1, 64, sum, out, 32);
  expect_none(count_and_read_in_warp, 1, 64, sum, out, 1);
  expect_none(count_and_read_in_warp, 1, 64, sum, out, 0);
}
TEST_F(Races, AnAtomicRacesWithTheWriteThatAnotherWarpsAtomicsCameAfter) {
  int* const sum = reinterpret_cast<int*>(device({0}));
  expect_race(" of a block of 4 bytes", write_and_count, 1, 64, sum, 32);
  expect_none(write_and_count, 1, 64, sum, 3);
}

void halves(uint16_t* data) { data[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
TEST_F(Races, NeighboursWithinAWordDoNotRace) {
  expect_none(halves, 5, 33, reinterpret_cast<uint16_t*>(device(std::vector<float>(83))));
}

void everyone_reads(const float* from, float* to) {
  if (thread() == 0) shared()[0] = from[0];
  __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] = shared()[0] + from[0];
}
TEST_F(Races, LaunchesOnOneStreamAndCommonReadsDoNotRace) {
  float *const a = device({1}), *const b = device(std::vector<float>(192));
  expect_none(everyone_reads, 3, 64, const_cast<const float*>(a), b);
  expect_none(everyone_reads, 1, 1, const_cast<const float*>(b), a);
}

TEST_F(Races, TheSearchCanBeTurnedOff) {
  gpu_emulation::Settings settings = gpu_emulation::settings();
  settings.races = false;
  gpu_emulation::set(settings);
  expect_none(write_one, 2, 32, device(std::vector<float>(4)));
  settings.races = true;
  gpu_emulation::set(settings);
}

void copy_by_stride(const float* from, float* to, int stride) {
  to[thread() * stride] = from[thread() * stride];
}
template <typename T>
void touch_shared(int stride) {
  static_cast<T*>(gpu_emulation::shared_memory())[thread() * stride] = T{};
}
struct alignas(16) Four {
  float at[4];
};

class WarpCounts : public Races {
 protected:
  template <typename... Parameters, typename... Arguments>
  WarpTraffic counts(void (*kernel)(Parameters...), unsigned threads, Arguments... arguments) {
    watch_warps();
    EXPECT_EQ(start(kernel, 1, threads, 8192, stream_, arguments...), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << gpu_emulation::report();
    return take_warps();
  }
};

TEST_F(WarpCounts, NeighboursShareSectorsAndAStrideCostsASectorEach) {
  const float* const from = device(std::vector<float>(512));
  float* const to = device(std::vector<float>(512));
  WarpTraffic got = counts(copy_by_stride, 64, from, to, 1);
  EXPECT_EQ(got.global_accesses, 4u);  // a read and a write of two warps
  EXPECT_EQ(got.sectors, 16u);
  EXPECT_EQ(got.least_sectors, 16u);
  got = counts(copy_by_stride, 64, from, to, 8);
  EXPECT_EQ(got.global_accesses, 4u);
  EXPECT_EQ(got.sectors, 128u);
  EXPECT_EQ(got.least_sectors, 16u);
  EXPECT_EQ(got.shared_accesses, 0u);
  got = counts(copy_by_stride, 1, from, to, 1);
  EXPECT_EQ(got.sectors, 2u);
}

TEST_F(WarpCounts, WordsOfOneBankCostAPassEach) {
  const auto passes = [&](void (*kernel)(int), unsigned threads, int stride) {
    const WarpTraffic got = counts(kernel, threads, stride);
    EXPECT_EQ(got.shared_accesses, 1u);
    EXPECT_EQ(got.global_accesses, 0u);
    return std::pair(got.passes, got.least_passes);
  };
  using Passes = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(passes(touch_shared<float>, 32, 1), Passes(1, 1));
  EXPECT_EQ(passes(touch_shared<float>, 32, 2), Passes(2, 1));
  EXPECT_EQ(passes(touch_shared<float>, 32, 32), Passes(32, 1));
  EXPECT_EQ(passes(touch_shared<float>, 32, 33), Passes(1, 1)) << "a padded row";
  EXPECT_EQ(passes(touch_shared<float>, 1, 32), Passes(1, 1));
  EXPECT_EQ(passes(touch_shared<double>, 32, 1), Passes(2, 2));
  EXPECT_EQ(passes(touch_shared<Four>, 32, 1), Passes(4, 4));
  EXPECT_EQ(passes(touch_shared<Four>, 32, 8), Passes(32, 4));
}

}  // namespace
