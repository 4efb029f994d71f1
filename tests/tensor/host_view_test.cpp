#include "tensor/host_view.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace gangway {
namespace {

// A device whose memory says something else than its copies: every byte is stored flipped.
class Flipped final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  int index() const override { return 0; }
  std::string name() const override { return "flipped"; }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override { return nullptr; }
  Stream& wrap_stream(void*) override { return stream_; }
  void order(void*) override {}
  std::unique_ptr<Event> make_event() override { return nullptr; }
  MemoryKind memory_kind() const override { return MemoryKind::device; }
  std::shared_ptr<Allocator> pinned_allocator() override {
    return std::make_shared<Memory>(*this, MemoryKind::pinned);
  }
  std::shared_ptr<Allocator> allocator() override {
    return std::make_shared<Memory>(*this, MemoryKind::device);
  }
  void copy(void* to, const void* from, size_t bytes, Stream&) override {
    for (size_t i = 0; i < bytes; ++i)
      static_cast<unsigned char*>(to)[i] =
          static_cast<unsigned char>(~static_cast<const unsigned char*>(from)[i]);
    last_written = to;
  }
  void zero(void*, size_t, Stream&) override {}

  int synchronized = 0;
  void* last_written = nullptr;
  bool fails = false;               // synchronize does
  std::vector<void*> pinned_freed;  // in place of a free: what streams hold may still use it

 private:
  struct Queue final : Stream {
    explicit Queue(Flipped& device) : device_(device) {}
    Device& device() override { return device_; }
    void wait(Event&) override {}
    void synchronize() override {
      ++device_.synchronized;
      if (device_.fails) fail(Code::gang, "the device was lost");
    }
    void* native() override { return nullptr; }
    Flipped& device_;
  };
  struct Memory final : Allocator {
    Memory(Flipped& device, MemoryKind kind) : device_(device), kind_(kind) {}
    Device& device() override { return device_; }
    MemoryKind kind() const override { return kind_; }
    Block allocate(size_t bytes) override { return {std::malloc(bytes), bytes, 0}; }
    void free(const Block& block) noexcept override {
      if (kind_ == MemoryKind::pinned) device_.pinned_freed.push_back(block.data);
      std::free(block.data);
    }
    Flipped& device_;
    const MemoryKind kind_;
  };
  Queue stream_{*this};
};

TEST(HostView, ReadsADevicesMemoryByItsCopies) {
  Flipped device;
  const Tensor there = Tensor::allocate(device.allocator(), DType::i64, Shape{3});
  const int64_t values[] = {7, -100, 1 << 20};
  device.copy(there.raw(), values, sizeof values, device.stream());
  const HostView<int64_t> here(there, device.stream());
  EXPECT_EQ(std::vector<int64_t>(here.begin(), here.end()), (std::vector<int64_t>{7, -100, 1 << 20}));
  EXPECT_EQ(device.synchronized, 1);
}

TEST(HostView, CopiesIntoMemoryThatIsTheStreamsWhereWaitingFails) {
  Flipped device;
  const Tensor there = Tensor::allocate(device.allocator(), DType::f64, Shape{3});
  device.fails = true;
  EXPECT_THROW((HostView<double>(there, device.stream())), Error);
  EXPECT_EQ(device.pinned_freed, std::vector<void*>{device.last_written});
}

TEST(HostView, OfACpuIsInPlace) {
  const std::shared_ptr<Device> device = make_device("cpu");
  const Tensor there = Tensor::allocate(device->allocator(), DType::f64, Shape{2});
  there.data<double>()[1] = 0.5;
  const HostView<double> here(there, device->stream());
  EXPECT_EQ(here.begin(), there.data<double>());
  EXPECT_EQ(here[1], 0.5);
}

TEST(HostView, OfNothingIsEmpty) {
  Flipped device;
  const HostView<double> here(Tensor::allocate(device.allocator(), DType::f64, Shape{0}), device.stream());
  EXPECT_EQ(here.begin(), here.end());
}

}  // namespace
}  // namespace gangway
