#include "gang/nccl/registered_memory.h"

#include <algorithm>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/memory.h"
#include "gang/nccl/aborts.h"
#include "gang/nccl/api.h"

namespace gangway::nccl {

class RegisteredMemory::Blocks final : public Allocator {
 public:
  explicit Blocks(std::shared_ptr<RegisteredMemory> memory)
      : memory_(std::move(memory)), plain_(memory_->device_->allocator()) {}
  Device& device() override { return *memory_->device_; }
  MemoryKind kind() const override { return MemoryKind::device; }
  Block allocate(size_t bytes) override {
    if (bytes < memory_->least_ || bytes == 0) return plain_->allocate(bytes);
    return {memory_->allocate(bytes), bytes, kRegistrable};
  }
  void free(const Block& block) noexcept override {
    if (block.token != kRegistrable) return plain_->free(block);
    memory_->free(block.data);
  }

 private:
  static constexpr uint64_t kRegistrable = 1;  // a block's token; plain memory has 0

  const std::shared_ptr<RegisteredMemory> memory_;
  const std::shared_ptr<Allocator> plain_;
};

RegisteredMemory::RegisteredMemory(std::shared_ptr<Device> device, size_t least)
    : device_(std::move(device)), least_(least) {}

// All engines and buffers are gone. What still cannot be given back stays with the driver until the process
// ends.
RegisteredMemory::~RegisteredMemory() { reclaim(/*wait=*/true); }

std::shared_ptr<Allocator> RegisteredMemory::allocator() {
  return std::make_shared<Blocks>(shared_from_this());
}

size_t RegisteredMemory::bytes_of(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  return found == blocks_.end() ? 0 : found->second.bytes;
}

bool RegisteredMemory::is_freed(const void* data) const {
  const std::lock_guard lock(mutex_);
  return blocks_.at(data).is_freed;
}

bool RegisteredMemory::is_registered(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  return found != blocks_.end() && found->second.registrations != 0;
}

void RegisteredMemory::hold(const void* data) {
  const std::lock_guard lock(mutex_);
  ++blocks_.at(data).registrations;
}

void RegisteredMemory::drop(const void* data) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(data); found != blocks_.end()) --found->second.registrations;
}

// The pool of the device may keep the memory that is wanted here.
void* RegisteredMemory::allocate(size_t bytes) {
  const cuda::OnDevice on(device_->index());
  reclaim(/*wait=*/false);
  void* data = take(bytes);
  if (data == nullptr) {
    device_->submit();
    wait_for_work();
    reclaim(/*wait=*/true);
    cuda::device_memory(*device_).trim();
    data = take(bytes);
  }
  if (data == nullptr) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(Code::out_of_memory, "device ", device_->name(), " has ", free, " of ", total,
         " bytes free: ", bytes,
         " more are wanted in memory that NCCL registers (GANGWAY_NCCL_REGISTER=0 uses plain memory)");
  }
  try {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, State{bytes, 0, false});
  } catch (...) {
    api().mem_free(data);
    throw;
  }
  return data;
}

void* RegisteredMemory::take(size_t bytes) {
  void* data = nullptr;
  if (api().mem_alloc(&data, bytes) == ncclSuccess) return data;
  cudaGetLastError();  // forgets the failure, which is this function's result
  return nullptr;
}

void RegisteredMemory::free(void* data) noexcept {
  {
    const std::lock_guard lock(mutex_);
    blocks_.find(data)->second.is_freed = true;
  }
  reclaim(/*wait=*/false);
}

bool RegisteredMemory::anything_freed() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(blocks_.begin(), blocks_.end(), [](const auto& block) {
    return block.second.is_freed && block.second.registrations == 0;
  });
}

void RegisteredMemory::wait_for_work() const noexcept {
  cuda::Memory& streams = cuda::device_memory(*device_);
  try {
    cuda::watches(*device_).wait([&] { return streams.work() != cuda::Memory::Work::running; });
  } catch (...) {  // a peer is lost; what is freed stays until a later call
  }
}

void RegisteredMemory::reclaim(bool wait) noexcept {
  if (!anything_freed()) return;
  if (wait) {
    wait_for_aborts();
    wait_for_work();
  }
  const cuda::OnDevice on(device_->index(), std::nothrow);
  const std::lock_guard lock(mutex_);  // before the streams are asked: no block is freed after that
  if (aborting() || cuda::device_memory(*device_).work() != cuda::Memory::Work::done) return;
  std::erase_if(blocks_, [](const auto& block) {
    const bool ends = block.second.is_freed && block.second.registrations == 0;
    if (ends) api().mem_free(const_cast<void*>(block.first));
    return ends;
  });
}

}  // namespace gangway::nccl
