#include "device/cpu/cpu_device.h"

#include <cstdlib>
#include <cstring>

#include "base/config.h"
#include "device/host_memory.h"

namespace gangway::cpu {
namespace {

class DoneEvent final : public Event {
 public:
  void record(Stream&) override {}
  bool done() override { return true; }
  void wait() override {}
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(Device& device) : device_(device) {}
  Device& device() override { return device_; }
  void wait(Event& event) override { event.wait(); }
  void synchronize() override {}
  void* native() override { return nullptr; }

 private:
  Device& device_;
};

class HostDevice final : public CpuDevice, public std::enable_shared_from_this<HostDevice> {
 public:
  explicit HostDevice(int threads) : pool_(threads) {}
  DeviceKind kind() const override { return DeviceKind::cpu; }
  int index() const override { return 0; }
  std::string name() const override { return "cpu"; }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override { return std::make_unique<CpuStream>(*this); }
  Stream& wrap_stream(void* native) override {
    if (native != nullptr)
      fail(Code::invalid_argument, "stream is not null, but device cpu has no streams of the caller");
    return stream_;
  }
  // Nothing to do: a CPU's stream has run all its work.
  void order(void* native) override { wrap_stream(native); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DoneEvent>(); }
  MemoryKind memory_kind() const override { return MemoryKind::host; }
  std::shared_ptr<Allocator> allocator() override;
  std::shared_ptr<Allocator> pinned_allocator() override { return allocator(); }
  Pool& pool() override { return pool_; }

  void copy(void* to, const void* from, size_t bytes, Stream&) override {
    pool_.run(bytes, kGrain, [&](int, size_t first, size_t last) {
      std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first, last - first);
    });
  }
  void zero(void* to, size_t bytes, Stream&) override {
    pool_.run(bytes, kGrain, [&](int, size_t first, size_t last) {
      std::memset(static_cast<char*>(to) + first, 0, last - first);
    });
  }

 private:
  // In bytes. Below it, waking a thread costs more than the copy.
  static constexpr size_t kGrain = 256 << 10;
  Pool pool_;
  CpuStream stream_{*this};
};

constexpr size_t kAlignment = 64;
// For smaller blocks, reading the host's memory size is not worth its cost.
constexpr size_t kUncheckedBytes = size_t{1} << 30;

// The source that a block came from, and must go back to. The block's token is the address of its Origin.
struct Origin {
  std::shared_ptr<const HostMemoryHooks> source;
  size_t bytes = 0;
};

class HostAllocator final : public Allocator {
 public:
  explicit HostAllocator(std::shared_ptr<HostDevice> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  MemoryKind kind() const override { return MemoryKind::host; }

  Block allocate(size_t bytes) override {
    if (bytes == 0) return {};
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (auto source = host_memory_hooks()) {
      auto origin = std::make_unique<Origin>(Origin{std::move(source), rounded});
      const HostMemoryHooks& from = *origin->source;
      void* const data = rounded < bytes ? nullptr : from.allocate(from.user, rounded, kAlignment);
      if (data == nullptr) fail(Code::out_of_memory, "the caller's allocator has no ", bytes, " bytes left");
      return {data, bytes, reinterpret_cast<uint64_t>(origin.release())};
    }
    // The kernel would grant the address space, and kill the process when it writes there.
    if (bytes > kUncheckedBytes && bytes > total_memory())
      fail(Code::out_of_memory, bytes, " bytes are wanted, but the host has ", total_memory());
    void* const data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) fail(Code::out_of_memory, "the host has no ", bytes, " bytes left");
    return {data, bytes, 0};
  }
  void free(const Block& block) noexcept override {
    if (block.token == 0) return std::free(block.data);
    const std::unique_ptr<Origin> origin(reinterpret_cast<Origin*>(block.token));
    origin->source->free(origin->source->user, block.data, origin->bytes);
  }

 private:
  const std::shared_ptr<HostDevice> device_;
};

std::shared_ptr<Allocator> HostDevice::allocator() {
  return std::make_shared<HostAllocator>(shared_from_this());
}

}  // namespace

std::shared_ptr<Device> make_cpu_device(const DeviceOptions& options) {
  int threads = options.threads > 0 ? options.threads : config().num_threads;
  return std::make_shared<HostDevice>(threads > 0 ? threads : 1);
}

}  // namespace gangway::cpu
