// Registrations that corrupt memory, hang or leak in NCCL are faults of the emulated NCCL.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include <cuda_runtime.h>
#include <nccl.h>
#include "gpu_emulation/emulator.h"

namespace {

constexpr size_t kBytes = 8192;

// Two ranks on devices 0 and 1, each with memory of ncclMemAlloc.
class EmulatedNcclMemory : public testing::Test {
 protected:
  void SetUp() override {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int r = 0; r < 2; ++r) {
      use(r);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ASSERT_EQ(ncclCommInitRankConfig(&comms_[at(r)], 2, id, r, &config), ncclInProgress);
      ASSERT_EQ(cudaStreamCreateWithPriority(&streams_[at(r)], cudaStreamNonBlocking, 0), cudaSuccess);
      ASSERT_EQ(ncclMemAlloc(&data_[at(r)], kBytes), ncclSuccess);
    }
  }
  void TearDown() override {
    gpu_emulation::reset();
    for (int r = 0; r < 2; ++r) {
      use(r);
      EXPECT_TRUE(comms_[at(r)] == nullptr || ncclCommAbort(comms_[at(r)]) == ncclSuccess);
      EXPECT_EQ(cudaStreamSynchronize(streams_[at(r)]), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(streams_[at(r)]), cudaSuccess);
      EXPECT_EQ(ncclMemFree(data_[at(r)]), ncclSuccess);
    }
    EXPECT_EQ(gpu_emulation::living(), 0);
  }

  static size_t at(int rank) { return static_cast<size_t>(rank); }
  static void use(int rank) { EXPECT_EQ(cudaSetDevice(rank), cudaSuccess); }
  ncclWindow_t add_window(int r, size_t bytes = kBytes) {
    use(r);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(comms_[at(r)], data_[at(r)], bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclInProgress);
    return window;
  }
  ncclResult_t state(int r) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comms_[at(r)], &state), ncclSuccess);
    return state;
  }
  ncclResult_t gather(int r, size_t offset = 0) {
    use(r);
    char* const data = static_cast<char*>(data_[at(r)]) + offset;
    return ncclAllGather(data, data + kBytes / 2, 16, ncclUint8, comms_[at(r)], streams_[at(r)]);
  }
  void synchronize() {
    for (int r = 0; r < 2; ++r) {
      use(r);
      cudaStreamSynchronize(streams_[at(r)]);
    }
  }
  static void expect_report(const char* words) {
    EXPECT_NE(gpu_emulation::report().find(words), std::string::npos) << gpu_emulation::report();
  }

  std::array<ncclComm_t, 2> comms_{};
  std::array<cudaStream_t, 2> streams_{};
  std::array<void*, 2> data_{};
};

TEST_F(EmulatedNcclMemory, WindowsAreReadyWhenAllRanksHaveRegisteredThem) {
  const ncclWindow_t first = add_window(0);
  EXPECT_EQ(state(0), ncclInProgress);
  const ncclWindow_t second = add_window(1);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(state(r), ncclSuccess);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(gather(r), ncclSuccess);
  synchronize();
  EXPECT_EQ(ncclCommWindowDeregister(comms_[0], first), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comms_[1], second), ncclSuccess);
  EXPECT_EQ(gpu_emulation::report(), "");
}

TEST_F(EmulatedNcclMemory, WindowsOfDifferentSizesAreAFault) {
  add_window(0);
  add_window(1, kBytes / 2);
  state(0);
  expect_report("ranks 0 and 1 register windows of different sizes or in different orders");
}

// Rank 1 deregistered a window before it registered the second, so its windows lie elsewhere.
TEST_F(EmulatedNcclMemory, ADeregistrationOnOneRankIsAFaultOfTheNextRegistration) {
  add_window(0);
  const ncclWindow_t window = add_window(1);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(state(r), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comms_[1], window), ncclSuccess);
  add_window(0);
  add_window(1);
  state(1);
  expect_report("ranks 0 and 1 register windows of different sizes or in different orders");
}

TEST_F(EmulatedNcclMemory, AWindowOfOtherMemoryIsAFault) {
  use(0);
  void* data = nullptr;
  ASSERT_EQ(cudaMallocAsync(&data, kBytes, streams_[0]), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(streams_[0]), cudaSuccess);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(comms_[0], data, kBytes, &window, NCCL_WIN_COLL_SYMMETRIC),
            ncclInvalidUsage);
  expect_report("a window is not a block of ncclMemAlloc");
  gpu_emulation::reset();
  EXPECT_EQ(cudaFreeAsync(data, streams_[0]), cudaSuccess);
}

TEST_F(EmulatedNcclMemory, RegisteredMemoryOnOneRankAloneIsAFault) {
  use(0);
  void* handle = nullptr;
  ASSERT_EQ(ncclCommRegister(comms_[0], data_[0], kBytes, &handle), ncclSuccess);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(gather(r), ncclSuccess);
  synchronize();
  expect_report("ranks 0 and 1 pass buffers at different places of their registered memory");
}

TEST_F(EmulatedNcclMemory, DifferentPlacesOfAWindowAreAFault) {
  for (int r = 0; r < 2; ++r) add_window(r);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(gather(r, 256 * at(r)), ncclSuccess);
  synchronize();
  expect_report("ranks 0 and 1 pass buffers at different places of their registered memory");
}

TEST_F(EmulatedNcclMemory, MemoryThatIsFreedWhileItIsRegisteredIsAFault) {
  add_window(0);
  EXPECT_EQ(ncclMemFree(data_[0]), ncclInvalidUsage);
  expect_report("memory is freed while it is registered");
}

TEST_F(EmulatedNcclMemory, ADeregistrationAfterTheCommunicatorIsAFault) {
  const ncclWindow_t window = add_window(0);
  ncclCommAbort(comms_[0]);
  EXPECT_EQ(ncclCommWindowDeregister(comms_[0], window), ncclInvalidUsage);
  comms_[0] = nullptr;
  expect_report("a buffer is deregistered after its communicator has ended");
}

TEST_F(EmulatedNcclMemory, ADeregistrationBesideACollectiveIsAFault) {
  const ncclWindow_t window = add_window(0);
  add_window(1);
  EXPECT_EQ(gather(0), ncclSuccess);  // waits for rank 1
  use(0);
  EXPECT_EQ(ncclCommWindowDeregister(comms_[0], window), ncclInvalidUsage);
  expect_report("a buffer is deregistered while a collective of its communicator is in flight");
}

TEST_F(EmulatedNcclMemory, ACommunicatorThatIsFinalizedWithRegistrationsIsAFault) {
  use(0);
  void* handle = nullptr;
  ASSERT_EQ(ncclCommRegister(comms_[0], data_[0], kBytes, &handle), ncclSuccess);
  ncclCommFinalize(comms_[0]);
  expect_report("a communicator is finalized while buffers are registered");
}

}  // namespace
