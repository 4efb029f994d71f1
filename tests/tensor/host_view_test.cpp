#include "tensor/host_view.h"

#include <gtest/gtest.h>

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
  std::unique_ptr<Event> make_event() override { return nullptr; }
  MemoryKind memory_kind() const override { return MemoryKind::device; }
  std::shared_ptr<Allocator> pinned_allocator() override { return allocator(); }
  std::shared_ptr<Allocator> allocator() override { return std::make_shared<Memory>(*this); }
  void copy(void* to, const void* from, size_t bytes, Stream&) override {
    for (size_t i = 0; i < bytes; ++i)
      static_cast<unsigned char*>(to)[i] =
          static_cast<unsigned char>(~static_cast<const unsigned char*>(from)[i]);
  }
  void zero(void*, size_t, Stream&) override {}

  int synchronized = 0;

 private:
  struct Queue final : Stream {
    explicit Queue(Flipped& device) : device_(device) {}
    Device& device() override { return device_; }
    void wait(Event&) override {}
    void synchronize() override { ++device_.synchronized; }
    void* native() override { return nullptr; }
    Flipped& device_;
  };
  struct Memory final : Allocator {
    explicit Memory(Flipped& device) : device_(device) {}
    Device& device() override { return device_; }
    MemoryKind kind() const override { return MemoryKind::device; }
    Block allocate(size_t bytes) override { return {std::malloc(bytes), bytes, 0}; }
    void free(const Block& block) noexcept override { std::free(block.data); }
    Flipped& device_;
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
