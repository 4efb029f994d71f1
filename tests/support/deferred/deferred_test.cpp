#include "support/deferred/deferred.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/expect_error.h"
#include "support/host_memory.h"

namespace gangway {
namespace {

using test::HostMemory;

std::shared_ptr<Device> deferred_device(int seed = 1) {
  return make_device("deferred:" + std::to_string(seed));
}

Tensor filled(Device& device, Ops& ops, int64_t count, double value) {
  const Tensor t = Tensor::allocate(device.allocator(), DType::f64, {count});
  ops.fill(t, value, device.stream());
  return t;
}

double first(const Tensor& t) { return *HostMemory(t).data<double>(); }

// Sleeps on the stream, so that work that is not ordered after it runs before it.
void hold(Stream& stream) {
  deferred::enqueue(stream,
                    [](deferred::Worker&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
}

TEST(Deferred, WorkRunsLateAndInOrder) {
  const auto device = deferred_device();
  const auto ops = make_ops(device);
  std::vector<int> order;
  const auto event = device->make_event();
  EXPECT_TRUE(event->done()) << "never recorded";
  for (int i = 0; i < 3; ++i)
    deferred::enqueue(device->stream(), [&order, i](deferred::Worker&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      order.push_back(i);
    });
  event->record(device->stream());
  EXPECT_FALSE(event->done());
  event->wait();
  EXPECT_TRUE(event->done());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(Deferred, AnEventOrdersTwoStreams) {
  const auto device = deferred_device();
  const auto ops = make_ops(device);
  const auto other = device->make_stream(StreamPriority::high);
  const auto event = device->make_event();
  const Tensor t = filled(*device, *ops, 5, 1);
  device->stream().synchronize();
  hold(*other);
  ops->fill(t, 2, *other);
  event->record(*other);
  device->stream().wait(*event);
  ops->add(t, 1, t, device->stream());
  EXPECT_EQ(first(t), 4);
  EXPECT_EQ(deferred::waits(*device), 1);
}

TEST(Deferred, LeavingOutAWaitChangesTheResult) {
  const auto device = deferred_device();
  const auto ops = make_ops(device);
  const auto other = device->make_stream(StreamPriority::high);
  const auto event = device->make_event();
  const Tensor t = filled(*device, *ops, 5, 1), copy = filled(*device, *ops, 5, 0);
  device->stream().synchronize();
  deferred::set_ignored_wait(*device, 0);
  hold(*other);
  event->record(*other);
  device->stream().wait(*event);
  EXPECT_FALSE(event->done());
  device->stream().synchronize();
  EXPECT_FALSE(event->done()) << "the stream did not wait";
  other->synchronize();
}

TEST(Deferred, HostCodeThatReadsItsMemoryCrashes) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto device = deferred_device();
  const Tensor t = Tensor::allocate(device->allocator(), DType::f64, {4});
  EXPECT_FALSE(t.on_host());
  EXPECT_TRUE(Tensor::allocate(device->pinned_allocator(), DType::f64, {4}).on_host());
  EXPECT_DEATH(*static_cast<volatile double*>(t.raw()) = 1, "");
}

TEST(Deferred, AFreedBlockLivesUntilTheStreamsHaveRunWhatTheyHeld) {
  const auto device = deferred_device();
  const auto ops = make_ops(device);
  const Tensor result = filled(*device, *ops, 1000, 0);
  {
    const Tensor passing = filled(*device, *ops, 1000, 3);
    hold(device->stream());
    ops->add(passing, 1, result, device->stream());
  }
  const Tensor reuse = Tensor::allocate(device->allocator(), DType::f64, {1000});
  std::memset(deferred::host_address(reuse.raw()), 0, reuse.bytes());
  EXPECT_EQ(first(result), 3);
}

TEST(Deferred, CountsHowOftenTheHostWaits) {
  const auto device = deferred_device();
  const auto ops = make_ops(device);
  const Tensor t = filled(*device, *ops, 3, 1);
  EXPECT_EQ(deferred::synchronizations(*device), 0);
  device->stream().synchronize();
  EXPECT_EQ(deferred::synchronizations(*device), 1);
  const auto event = device->make_event();
  event->record(device->stream());
  event->wait();
  EXPECT_EQ(deferred::synchronizations(*device), 2);
}

TEST(Deferred, AStreamIsOrderedAfterAllOthers) {
  const auto device = deferred_device();
  const auto first = device->make_stream(StreamPriority::normal),
             second = device->make_stream(StreamPriority::high);
  std::atomic<int> run = 0;
  for (Stream* const stream : {first.get(), second.get()}) {
    hold(*stream);
    deferred::enqueue(*stream,
                      [&run, stream, &first](deferred::Worker&) { run |= stream == first.get() ? 1 : 2; });
  }
  int seen = 0;
  device->order(nullptr);
  deferred::enqueue(device->stream(), [&](deferred::Worker&) { seen = run; });
  device->stream().synchronize();
  EXPECT_EQ(seen, 3);
}

TEST(Deferred, AFailureOfATaskIsThrownAtTheNextSynchronize) {
  const auto device = deferred_device();
  deferred::enqueue(device->stream(), [](deferred::Worker&) { fail(Code::io, "lost"); });
  EXPECT_EQ(test::error_of([&] { device->stream().synchronize(); }).message(), "lost");
  device->stream().synchronize();
}

TEST(Deferred, AStreamOfTheCallerIsFoundAndAForeignOneRefused) {
  const auto device = deferred_device();
  const auto own = device->make_stream(StreamPriority::normal);
  EXPECT_EQ(&device->wrap_stream(own->native()), own.get());
  EXPECT_EQ(&device->wrap_stream(nullptr), &device->stream());
  int none = 0;
  EXPECT_EQ(test::error_of([&] { device->wrap_stream(&none); }).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace gangway
