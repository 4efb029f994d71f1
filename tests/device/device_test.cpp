#include "device/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace gangway {
namespace {

Code code_of(const char* name) {
  try {
    make_device(name);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
    return error.code();
  }
  return Code::ok;
}

TEST(Device, CudaIsNotSupportedAndAnUnknownNameIsRefused) {
  EXPECT_EQ(code_of("cpu"), Code::ok);
  EXPECT_EQ(code_of("meta"), Code::ok);
  EXPECT_EQ(code_of("cuda"), Code::not_supported);
  EXPECT_EQ(code_of("cuda:1"), Code::not_supported);
  EXPECT_EQ(code_of("tpu"), Code::invalid_argument);
}

TEST(Device, CpuBlocksAreAlignedAndCopiesAndZeroesAreExact) {
  const auto device = make_device("cpu", {0, 2});
  const auto allocator = device->allocator();
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{1000003}}) {
    const Block a = allocator->allocate(bytes), b = allocator->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
    if (bytes > 0) std::memset(a.data, 7, bytes);
    device->copy(b.data, a.data, bytes, device->stream());
    EXPECT_TRUE(bytes == 0 || std::memcmp(a.data, b.data, bytes) == 0);
    device->zero(b.data, bytes, device->stream());
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(static_cast<char*>(b.data)[i], 0);
    allocator->free(a);
    allocator->free(b);
  }
}

TEST(Device, OutOfMemoryIsAStatusWithTheNumberOfBytes) {
  const auto allocator = make_device("cpu")->allocator();
  try {
    allocator->allocate(size_t{1} << 62);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_NE(error.message().find("4611686018427387904"), std::string::npos) << error.message();
  }
}

TEST(Device, MetaTakesNoMemoryForAnySize) {
  const auto allocator = make_device("meta")->allocator();
  const Block block = allocator->allocate(size_t{1} << 50);
  EXPECT_EQ(block.data, nullptr);
  EXPECT_EQ(block.bytes, size_t{1} << 50);
  allocator->free(block);
}

TEST(Device, ACpuStreamRunsAtOnce) {
  const auto device = make_device("cpu");
  const auto event = device->make_event();
  const auto other = device->make_stream(StreamPriority::high);
  event->record(*other);
  EXPECT_TRUE(event->done());
  event->wait();
  device->stream().wait(*event);
  device->stream().synchronize();
  EXPECT_EQ(device->stream().native(), nullptr);
  EXPECT_EQ(&other->device(), device.get());
}

TEST(Device, ACpuHasNoStreamsOfTheCaller) {
  const auto device = make_device("cpu");
  EXPECT_EQ(&device->wrap_stream(nullptr), &device->stream());
  int none = 0;
  EXPECT_THROW(device->wrap_stream(&none), Error);
  device->order(nullptr);
  EXPECT_THROW(device->order(&none), Error);
}

TEST(Device, ARegisteredKindIsMadeByTheNameBeforeTheColon) {
  register_device("twin", [](const std::string& name, const DeviceOptions&) {
    EXPECT_EQ(name, "twin:7");
    return make_device("cpu");
  });
  EXPECT_EQ(make_device("twin:7")->name(), "cpu");
  EXPECT_EQ(code_of("twins"), Code::invalid_argument);
}

}  // namespace
}  // namespace gangway
