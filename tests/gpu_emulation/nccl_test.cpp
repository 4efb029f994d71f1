// What NCCL leaves undefined is a fault of the emulated NCCL, and the report says which.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include "gpu_emulation/emulator.h"
#include "gpu_emulation/reduce.h"

namespace {

// Two ranks on devices 0 and 1, with two communicators between them.
class EmulatedNccl : public testing::Test {
 protected:
  struct Rank {
    std::array<ncclComm_t, 2> comms{};
    std::array<cudaStream_t, 2> streams{};
    void* data = nullptr;
  };

  void SetUp() override {
    std::array<ncclUniqueId, 2> ids;
    for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int r = 0; r < 2; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      for (size_t c = 0; c < 2; ++c) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ASSERT_EQ(ncclCommInitRankConfig(&rank.comms[c], 2, ids[c], r, &config), ncclInProgress);
        ASSERT_EQ(cudaStreamCreateWithPriority(&rank.streams[c], cudaStreamNonBlocking, 0), cudaSuccess);
      }
      ASSERT_EQ(cudaMallocAsync(&rank.data, 2 * sizeof(float), rank.streams[0]), cudaSuccess);
      ASSERT_EQ(cudaMemsetAsync(rank.data, 0, 2 * sizeof(float), rank.streams[0]), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(rank.streams[0]), cudaSuccess);
    }
  }
  void TearDown() override {
    gpu_emulation::reset();
    for (Rank& rank : ranks_) {
      for (const ncclComm_t comm : rank.comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      for (const cudaStream_t stream : rank.streams) cudaStreamSynchronize(stream);
      EXPECT_EQ(cudaFreeAsync(rank.data, rank.streams[0]), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(rank.streams[0]), cudaSuccess);
      for (const cudaStream_t stream : rank.streams) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    EXPECT_EQ(gpu_emulation::living(), 0);
  }

  // Starts an all_reduce of communicator `c`, which has its own stream and its own number in memory.
  ncclResult_t all_reduce(int r, size_t c, size_t count = 1) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    EXPECT_EQ(cudaSetDevice(r), cudaSuccess);
    float* const number = static_cast<float*>(rank.data) + (count == 1 ? c : 0);
    return ncclAllReduce(number, number, count, ncclFloat32, ncclSum, rank.comms[c], rank.streams[c]);
  }
  void settle() {
    for (const size_t c : {0u, 1u}) settle(c);
  }
  void settle(size_t c) {
    for (Rank& rank : ranks_) cudaStreamSynchronize(rank.streams[c]);
  }

  std::array<Rank, 2> ranks_;
};

TEST_F(EmulatedNccl, TwoCommunicatorsInOneOrderAreNoFault) {
  for (int r = 0; r < 2; ++r)
    for (const size_t c : {0u, 1u, 1u, 0u}) EXPECT_EQ(all_reduce(r, c), ncclSuccess);
  settle();
  EXPECT_EQ(gpu_emulation::report(), "");
}

// NCCL may hang then, because kernels that wait for a peer occupy a device.
TEST_F(EmulatedNccl, TwoCommunicatorsInDifferentOrdersAreAFault) {
  EXPECT_EQ(all_reduce(0, 0), ncclSuccess);
  EXPECT_EQ(all_reduce(0, 1), ncclSuccess);
  EXPECT_EQ(all_reduce(1, 1), ncclSuccess);
  settle(1);
  EXPECT_EQ(gpu_emulation::report(), "NCCL: devices 0 and 1 launch their communicators in different orders");
}

TEST_F(EmulatedNccl, DifferentCountsAreAFault) {
  EXPECT_EQ(all_reduce(0, 0, 1), ncclSuccess);
  EXPECT_EQ(all_reduce(1, 0, 2), ncclSuccess);
  settle();
  EXPECT_NE(gpu_emulation::report().find("call different collectives"), std::string::npos)
      << gpu_emulation::report();
}

// The number in the id differs from that of the segment.
TEST_F(EmulatedNccl, AnIdThatNobodyHoldsIsRefused) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  id.internal[0] ^= 1;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclSystemError);
}

// Longer than a slot of the segment and not a multiple of it, in memory that the host can read.
class EmulatedNcclChunks : public EmulatedNccl {
 protected:
  static constexpr size_t kCount = 150'001;

  void SetUp() override {
    EmulatedNccl::SetUp();
    for (size_t r = 0; r < 2; ++r) {
      ASSERT_EQ(cudaHostAlloc(&memory_[r], 4 * kCount * sizeof(float), cudaHostAllocPortable), cudaSuccess);
      in_[r] = static_cast<float*>(memory_[r]);
      out_[r] = in_[r] + 2 * kCount;
      for (size_t i = 0; i < 2 * kCount; ++i) in_[r][i] = value(r, i);
    }
  }
  void TearDown() override {
    for (void* const memory : memory_) EXPECT_EQ(cudaFreeHost(memory), cudaSuccess);
    EmulatedNccl::TearDown();
  }
  static float value(size_t rank, size_t i) { return static_cast<float>(i % 1009 + 2000 * rank); }
  template <typename Launch>
  void on_both(Launch&& launch) {
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(cudaSetDevice(static_cast<int>(r)), cudaSuccess);
      EXPECT_EQ(launch(r, ranks_[r].comms[0], ranks_[r].streams[0]), ncclSuccess);
    }
    settle(0);
    EXPECT_EQ(gpu_emulation::report(), "");
  }

  std::array<void*, 2> memory_{};
  std::array<float*, 2> in_{}, out_{};
};

TEST_F(EmulatedNcclChunks, EveryItemOfALongSumIsRight) {
  on_both([&](size_t r, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(in_[r], out_[r], 2 * kCount, ncclFloat32, ncclSum, comm, stream);
  });
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = 0; i < 2 * kCount; ++i)
      ASSERT_EQ(out_[r][i], value(0, i) + value(1, i)) << r << ", " << i;
}
TEST_F(EmulatedNcclChunks, EveryItemOfALongReduceScatterInPlaceIsRight) {
  on_both([&](size_t r, ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(in_[r], in_[r] + r * kCount, kCount, ncclFloat32, ncclSum, comm, stream);
  });
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = r * kCount; i < (r + 1) * kCount; ++i)
      ASSERT_EQ(in_[r][i], value(0, i) + value(1, i)) << r << ", " << i;
}
TEST_F(EmulatedNcclChunks, EveryItemOfALongGatherIsRight) {
  on_both([&](size_t r, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(in_[r], out_[r], kCount, ncclFloat32, comm, stream);
  });
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = 0; i < 2 * kCount; ++i)
      ASSERT_EQ(out_[r][i], value(i / kCount, i % kCount)) << r << ", " << i;
}
TEST_F(EmulatedNcclChunks, EveryItemOfLongMessagesBothWaysIsRight) {
  on_both([&](size_t r, ncclComm_t comm, cudaStream_t stream) {
    const int peer = 1 - static_cast<int>(r);
    ncclGroupStart();
    ncclSend(in_[r], 2 * kCount, ncclFloat32, peer, comm, stream);
    ncclRecv(out_[r], 2 * kCount, ncclFloat32, peer, comm, stream);
    return ncclGroupEnd();
  });
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = 0; i < 2 * kCount; ++i) ASSERT_EQ(out_[r][i], value(1 - r, i)) << r << ", " << i;
}

// A gang's sums of 16-bit types over NCCL may round at each hop (gang/collective.h). Their error is at most
// the number of hops times half a unit in the last place of the sum of the magnitudes.
TEST(EmulatedReduce, ARingRoundsAtEachHopAndStaysWithinTheToleranceOfSums) {
  constexpr size_t kRanks = 8, kItems = 1000;
  std::vector<std::vector<__nv_bfloat16>> inputs(kRanks);
  std::vector<const void*> in;
  for (size_t r = 0; r < kRanks; ++r) {
    for (size_t i = 0; i < kItems; ++i)
      inputs[r].push_back(__float2bfloat16_rn(std::sin(static_cast<float>(1 + i * 31 + r * 7)) + 0.25f));
    in.push_back(inputs[r].data());
  }
  std::vector<__nv_bfloat16> once(kItems), ring(kItems);
  for (const ncclRedOp_t op : {ncclSum, ncclAvg}) {
    const double parts = op == ncclAvg ? kRanks : 1;
    gpu_emulation::reduce(ncclBfloat16, op, in, once.data(), kItems);
    gpu_emulation::reduce_in_ring(ncclBfloat16, op, in, ring.data(), kItems);
    size_t differ = 0;
    for (size_t i = 0; i < kItems; ++i) {
      double sum = 0, sizes = 0;
      for (const auto& input : inputs) {
        sum += __bfloat162float(input[i]) / parts;
        sizes += std::abs(__bfloat162float(input[i])) / parts;
      }
      const double half_unit = std::ldexp(1.0, -8);
      EXPECT_NEAR(__bfloat162float(once[i]), sum, half_unit * std::abs(sum) * 1.01);
      EXPECT_NEAR(__bfloat162float(ring[i]), sum, (kRanks - 1) * half_unit * sizes * 1.05);
      differ += __bfloat162float(once[i]) != __bfloat162float(ring[i]) ? 1 : 0;
    }
    EXPECT_GT(differ, kItems / 10);
  }
}

// All ranks have the same bits, and small numbers are exact.
TEST_F(EmulatedNcclChunks, ALongSumInARingIsThatOfTheRanks) {
  gpu_emulation::Settings settings = gpu_emulation::settings();
  settings.ring = true;
  gpu_emulation::set(settings);
  on_both([&](size_t r, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(in_[r], out_[r], 2 * kCount, ncclFloat32, ncclSum, comm, stream);
  });
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = 0; i < 2 * kCount; ++i)
      ASSERT_EQ(out_[r][i], value(0, i) + value(1, i)) << r << ", " << i;
  settings.ring = false;
  gpu_emulation::set(settings);
}

}  // namespace
