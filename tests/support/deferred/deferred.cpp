#include "support/deferred/deferred.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/config.h"
#include "device/cpu/cpu_device.h"
#include "support/deferred/queue.h"

namespace gangway::deferred {
namespace {

constexpr uintptr_t kMark = uintptr_t{1} << 60;  // No address of a process has this bit.
constexpr size_t kAlignment = 64;

class DeferredDevice;

class DeferredStream final : public Stream {
 public:
  DeferredStream(DeferredDevice& device, uint32_t seed, int threads);
  ~DeferredStream() override;
  Device& device() override;
  void wait(Event& event) override;
  void synchronize() override;
  void* native() override { return this; }
  Queue& queue() { return queue_; }
  const Queue& queue() const { return queue_; }

 private:
  DeferredDevice& device_;
  Queue queue_;
};

DeferredStream& deferred_stream(Stream& stream) {
  auto* const mine = dynamic_cast<DeferredStream*>(&stream);
  if (mine == nullptr)
    fail(Code::internal, "a stream of device ", stream.device().name(), " is not deferred");
  return *mine;
}

class DeferredEvent final : public Event {
 public:
  explicit DeferredEvent(std::atomic<int64_t>& synchronizations) : synchronizations_(synchronizations) {}
  void record(Stream& stream) override {
    auto point = std::make_shared<Point>();
    point_ = point;
    deferred_stream(stream).queue().push([point = std::move(point)](Worker&) { point->reach(); });
  }
  bool done() override { return point_ == nullptr || point_->reached(); }
  void wait() override {
    ++synchronizations_;
    if (point_ != nullptr) point_->wait();
  }
  const std::shared_ptr<Point>& point() const { return point_; }

 private:
  std::atomic<int64_t>& synchronizations_;
  std::shared_ptr<Point> point_;
};

class DeferredDevice final : public Device, public std::enable_shared_from_this<DeferredDevice> {
 public:
  DeferredDevice(std::string name, uint32_t seed, int threads)
      : name_(std::move(name)), seed_(seed), threads_(threads), stream_(*this, seed, threads) {}
  DeviceKind kind() const override { return DeviceKind::extension; }
  int index() const override { return 0; }
  std::string name() const override { return name_; }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    auto stream = std::make_unique<DeferredStream>(*this, seed_ + ++made_, threads_);
    if (priority == StreamPriority::high) stream->queue().set_sleep(slow_collectives);
    return stream;
  }
  Stream& wrap_stream(void* native) override;
  void order(void* native) override;
  std::unique_ptr<Event> make_event() override { return std::make_unique<DeferredEvent>(synchronizations); }
  MemoryKind memory_kind() const override { return MemoryKind::device; }
  std::shared_ptr<Allocator> allocator() override;
  std::shared_ptr<Allocator> pinned_allocator() override;

  void copy(void* to, const void* from, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    enqueue(stream, [to = host_address(to), from = host_address(from), bytes](Worker&) {
      std::memcpy(to, from, bytes);
    });
  }
  void zero(void* to, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    enqueue(stream, [to = host_address(to), bytes](Worker&) { std::memset(to, 0, bytes); });
  }

  void add(DeferredStream* stream) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
  }
  void remove(DeferredStream* stream) {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, stream);
  }
  // Frees memory after every stream has run what it holds now.
  void free_later(void* memory) {
    const std::shared_ptr<void> hold(memory, std::free);
    const std::lock_guard lock(mutex_);
    for (DeferredStream* const stream : streams_)
      if (!stream->queue().idle()) stream->queue().push([hold](Worker&) {});
  }

  std::atomic<int64_t> synchronizations = 0, waits = 0, ignored_wait = -1;
  std::atomic<int> slow_collectives = 0;
  // Plain memory in bytes: the limit (0 means none), and how much is in use.
  std::atomic<uint64_t> memory_limit = 0, memory = 0;

 private:
  const std::string name_;
  const uint32_t seed_;
  const int threads_;
  std::atomic<uint32_t> made_ = 0;
  std::mutex mutex_;
  std::vector<DeferredStream*> streams_;
  DeferredStream stream_;
};

class DeferredMemory final : public Allocator {
 public:
  DeferredMemory(std::shared_ptr<DeferredDevice> device, MemoryKind kind)
      : device_(std::move(device)), kind_(kind) {}
  Device& device() override { return *device_; }
  MemoryKind kind() const override { return kind_; }
  Block allocate(size_t bytes) override {
    if (bytes == 0) return {};
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (!take(bytes))
      fail(Code::out_of_memory, "device deferred has ", device_->memory.load(), " of ",
           device_->memory_limit.load(), " bytes in use: ", bytes, " more are wanted");
    void* const data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) {
      give(bytes);
      fail(Code::out_of_memory, "device deferred has no ", bytes, " bytes left");
    }
    return {reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) | (is_on_host(kind_) ? 0 : kMark)),
            bytes, 0};
  }
  void free(const Block& block) noexcept override {
    if (block.data == nullptr) return;
    give(block.bytes);
    device_->free_later(host_address(block.data));
  }

 private:
  bool take(size_t bytes) {
    if (is_on_host(kind_)) return true;
    const uint64_t limit = device_->memory_limit;
    if ((device_->memory += bytes) <= limit || limit == 0) return true;
    give(bytes);
    return false;
  }
  void give(size_t bytes) {
    if (!is_on_host(kind_)) device_->memory -= bytes;
  }

  const std::shared_ptr<DeferredDevice> device_;
  const MemoryKind kind_;
};

DeferredStream::DeferredStream(DeferredDevice& device, uint32_t seed, int threads)
    : device_(device), queue_(seed, threads) {
  device_.add(this);
}
DeferredStream::~DeferredStream() {
  // The stream stays in the device's list until it has drained: it may use blocks that are freed meanwhile.
  queue_.drain();
  device_.remove(this);
}
Device& DeferredStream::device() { return device_; }

void DeferredStream::wait(Event& event) {
  if (device_.waits++ == device_.ignored_wait) return;
  const std::shared_ptr<Point> point = static_cast<DeferredEvent&>(event).point();
  if (point != nullptr) queue_.push([point](Worker&) { point->wait(); });
}

void DeferredStream::synchronize() {
  ++device_.synchronizations;
  queue_.synchronize();
}

Stream& DeferredDevice::wrap_stream(void* native) {
  if (native == nullptr) return stream_;
  const std::lock_guard lock(mutex_);
  for (DeferredStream* const stream : streams_)
    if (stream == native) return *stream;
  fail(Code::invalid_argument, "stream ", native, " is none of device ", name_);
}

void DeferredDevice::order(void* native) {
  Stream& later = wrap_stream(native);
  const std::lock_guard lock(mutex_);
  for (DeferredStream* const stream : streams_) {
    if (stream == &later) continue;
    DeferredEvent point(synchronizations);
    point.record(*stream);
    later.wait(point);
  }
}

std::shared_ptr<Allocator> DeferredDevice::allocator() {
  return std::make_shared<DeferredMemory>(shared_from_this(), MemoryKind::device);
}
std::shared_ptr<Allocator> DeferredDevice::pinned_allocator() {
  return std::make_shared<DeferredMemory>(shared_from_this(), MemoryKind::pinned);
}

std::shared_ptr<Device> make_deferred_device(const std::string& name, const DeviceOptions& options) {
  const size_t colon = name.find(':');
  const uint32_t seed =
      colon == std::string::npos ? 1 : static_cast<uint32_t>(std::stoul(name.substr(colon + 1)));
  return std::make_shared<DeferredDevice>(name, seed, options.threads);
}

const DeferredDevice& deferred_device(const Device& device) {
  return dynamic_cast<const DeferredDevice&>(device);
}

[[maybe_unused]] const bool registered = [] {
  register_device("deferred", make_deferred_device);
  register_ops(make_deferred_ops);
  return true;
}();

}  // namespace

void enqueue(Stream& stream, std::function<void(Worker&)> task) {
  deferred_stream(stream).queue().push(std::move(task));
}

bool is_idle(const Stream& stream) { return dynamic_cast<const DeferredStream&>(stream).queue().idle(); }

int64_t synchronizations(const Device& device) { return deferred_device(device).synchronizations; }
void count_synchronization(Device& device) { ++dynamic_cast<DeferredDevice&>(device).synchronizations; }
int64_t waits(const Device& device) { return deferred_device(device).waits; }
void set_slow_collectives(Device& device, int microseconds) {
  dynamic_cast<DeferredDevice&>(device).slow_collectives = microseconds;
}
void set_memory_limit(Device& device, uint64_t bytes) {
  dynamic_cast<DeferredDevice&>(device).memory_limit = bytes;
}
void set_ignored_wait(Device& device, int64_t number) {
  dynamic_cast<DeferredDevice&>(device).ignored_wait = number;
}

void* host_address(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~kMark);
}

Tensor host_address(const Tensor& tensor) {
  static const auto* const cpu = new std::shared_ptr<Device>(cpu::make_cpu_device({.threads = 1}));
  if (!tensor) return tensor;
  std::array<int64_t, kMaxDims> strides{};
  for (int i = 0; i < tensor.rank(); ++i) strides[static_cast<size_t>(i)] = tensor.stride(i);
  const Buffer& there = *tensor.buffer();
  return Tensor(Buffer::borrow(**cpu, MemoryKind::host, host_address(there.data()), there.bytes(), nullptr),
                tensor.byte_offset(), tensor.dtype(), tensor.shape(),
                std::span<const int64_t>(strides.data(), static_cast<size_t>(tensor.rank())));
}

}  // namespace gangway::deferred
