// If the device has no memory for a request, the module's Memory waits for blocks that are freed but still in
// use.
#include "device/cuda/memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include <cuda_runtime.h>

#include "gpu_emulation/emulator.h"

namespace gangway::cuda {
namespace {

constexpr size_t kAll = 1 << 20, kMost = kAll / 4 * 3;

std::atomic<bool> gate_open{false};
void wait_at_gate(int) {
  while (!gate_open) std::this_thread::yield();
}

class Peer final : public Watch {
 public:
  std::optional<Error> lost() override {
    if (given_up_) return std::nullopt;
    return Error(Code::peer_lost, "rank 1 is lost");
  }
  void give_up(const Error&) noexcept override {
    given_up_ = true;
    gate_open = true;
  }

 private:
  std::atomic<bool> given_up_{false};
};

class MemoryInUse : public testing::Test {
 protected:
  void SetUp() override {
    gpu_emulation::Settings settings = before_;
    settings.memory = kAll;
    gpu_emulation::set(settings);
    gate_open = false;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    memory_.emplace(0, watches_);
    memory_->add(stream_);
  }
  void TearDown() override {
    gate_open = true;
    cudaStreamSynchronize(stream_);
    memory_.reset();
    cudaStreamDestroy(stream_);
    EXPECT_EQ(gpu_emulation::living(), 0);
    gpu_emulation::set(before_);
    gpu_emulation::reset();
  }
  // Starts work on the stream that lasts until the gate opens.
  void start_work() {
    int unused = 0;
    void* arguments[] = {&unused};
    ASSERT_EQ(cudaLaunchKernel(wait_at_gate, dim3(1), dim3(1), arguments, 0, stream_), cudaSuccess);
  }

  const gpu_emulation::Settings before_ = gpu_emulation::settings();
  Watches watches_;
  std::optional<Memory> memory_;
  cudaStream_t stream_ = nullptr;
};

TEST_F(MemoryInUse, AnAllocationTakesFreedMemoryWhenItsStreamHasEnded) {
  void* const first = memory_->allocate(kMost);
  start_work();
  memory_->free(first);
  std::thread opener([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate_open = true;
  });
  void* const second = memory_->allocate(kMost);
  EXPECT_TRUE(gate_open) << "the block was taken while its stream used it";
  memory_->free(second);
  opener.join();
}

TEST_F(MemoryInUse, AnAllocationFailsWhereTheStreamWaitsForALostPeer) {
  Peer peer;
  watches_.add(peer);
  void* const first = memory_->allocate(kMost);
  start_work();
  memory_->free(first);
  try {
    memory_->free(memory_->allocate(kMost));
    ADD_FAILURE() << "nobody was told of the lost peer";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_STREQ(error.what(), "rank 1 is lost");
  }
  memory_->free(memory_->allocate(kMost));  // the stream is idle
  watches_.remove(peer);
}

TEST_F(MemoryInUse, AnAllocationDoesNotWaitWhereNoMemoryWasFreed) {
  void* const first = memory_->allocate(kMost);
  start_work();
  try {
    memory_->free(memory_->allocate(kMost));
    ADD_FAILURE() << "more than there is was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
  }
  EXPECT_FALSE(gate_open);
  gate_open = true;
  memory_->free(first);
}

TEST_F(MemoryInUse, PinnedIsUsedAgainWhenTheHostHasNoMore) {
  void* const first = memory_->allocate_pinned(1000);
  start_work();
  memory_->free_pinned(first, 1000);
  gpu_emulation::fail_call("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  std::thread opener([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate_open = true;
  });
  void* const second = memory_->allocate_pinned(1000);
  opener.join();
  EXPECT_EQ(second, first);
  memory_->free_pinned(second, 1000);
}

// A caller may capture a stream that the device knows. Until the capture ends, no stream and no event may be
// asked for its state.
TEST_F(MemoryInUse, AFreeDuringACaptureWaitsForItsEnd) {
  for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    gate_open = false;
    void* const before = memory_->allocate(64);
    void* const pinned = memory_->allocate_pinned(64);
    void* const during = memory_->allocate(kMost);
    start_work();
    memory_->free(before);  // waits for the work
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
    memory_->free(during);
    memory_->free_pinned(pinned, 64);
    memory_->free(memory_->allocate(64));
    EXPECT_THROW(memory_->allocate(kMost), Error) << "what waits for a capture's end is not there yet";
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ASSERT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusActive) << gpu_emulation::report();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    if (graph != nullptr) cudaGraphDestroy(graph);
    gate_open = true;
    memory_->free(memory_->allocate(kMost));
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(memory_->allocate_pinned(64), pinned);
    memory_->free_pinned(pinned, 64);
  }
}

TEST_F(MemoryInUse, BlocksThatWaitForACaptureAreFreedAtTheEnd) {
  void* const block = memory_->allocate(64);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  memory_->free(block);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  memory_->remove(stream_);
}

}  // namespace
}  // namespace gangway::cuda
