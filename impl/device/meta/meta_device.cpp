#include "device/meta/meta_device.h"

#include <utility>

#include "device/gpu_plans.h"

namespace gangway::meta {
namespace {

class DoneEvent final : public Event {
 public:
  void record(Stream&) override {}
  bool done() override { return true; }
  void wait() override {}
};

class MetaStream final : public Stream {
 public:
  explicit MetaStream(Device& device) : device_(device) {}
  Device& device() override { return device_; }
  void wait(Event&) override {}
  void synchronize() override {}
  void* native() override { return nullptr; }

 private:
  Device& device_;
};

class MetaDevice final : public Device, public std::enable_shared_from_this<MetaDevice> {
 public:
  explicit MetaDevice(std::string name) : name_(std::move(name)) {}
  DeviceKind kind() const override { return DeviceKind::meta; }
  int index() const override { return 0; }
  std::string name() const override { return name_; }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override { return std::make_unique<MetaStream>(*this); }
  Stream& wrap_stream(void* native) override {
    if (native != nullptr)
      fail(Code::invalid_argument, "stream is not null, but device meta has no streams of the caller");
    return stream_;
  }
  void order(void* native) override { wrap_stream(native); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DoneEvent>(); }
  MemoryKind memory_kind() const override { return MemoryKind::meta; }
  std::shared_ptr<Allocator> allocator() override;
  std::shared_ptr<Allocator> pinned_allocator() override { return allocator(); }
  void copy(void*, const void*, size_t, Stream&) override {}
  void zero(void*, size_t, Stream&) override {}

 private:
  const std::string name_;
  MetaStream stream_{*this};
};

class MetaAllocator final : public Allocator {
 public:
  explicit MetaAllocator(std::shared_ptr<MetaDevice> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  MemoryKind kind() const override { return MemoryKind::meta; }
  Block allocate(size_t bytes) override { return {nullptr, bytes, 0}; }
  void free(const Block&) noexcept override {}

 private:
  std::shared_ptr<MetaDevice> device_;
};

std::shared_ptr<Allocator> MetaDevice::allocator() {
  return std::make_shared<MetaAllocator>(shared_from_this());
}

}  // namespace

std::shared_ptr<Device> make_meta_device(const std::string& name) {
  if (name != "meta" && name != kMetaForGpus)
    fail(Code::invalid_argument, "device \"", name, "\" is no meta device: write meta (for CPUs) or ",
         kMetaForGpus);
  return std::make_shared<MetaDevice>(name);
}

}  // namespace gangway::meta
