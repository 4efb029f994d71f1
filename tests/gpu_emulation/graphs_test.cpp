// Operations that repeat become CUDA graphs. The tests show when, that the numbers equal those of single
// launches, and what happens when memory moves or a call fails.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error_of.h"
#include "base/log.h"
#include "gpu_emulation/emulator.h"
#include "ops/ops.h"
#include "support/host_memory.h"
#include "support/placed.h"

namespace gangway {
namespace {

using gpu_emulation::calls;

// A product, a sum over its rows and an addition: four kernels that need a workspace.
struct Layer {
  Layer(const std::shared_ptr<Device>& device, int64_t rows, int64_t width)
      : x(Tensor::allocate(device->allocator(), DType::f32, {rows, width})),
        w(Tensor::allocate(device->allocator(), DType::f32, {width, width})),
        y(Tensor::allocate(device->allocator(), DType::f32, {rows, width})),
        sum(Tensor::allocate(device->allocator(), DType::f32, {width})) {
    std::vector<float> values(static_cast<size_t>(rows * width));
    std::iota(values.begin(), values.end(), 1.0f);
    test::copy_in(x, values);
    values.assign(static_cast<size_t>(width * width), 0.25f);
    test::copy_in(w, values);
    values.assign(static_cast<size_t>(width), 0.0f);
    test::copy_in(sum, values);
  }
  void run(Ops& ops, Stream& stream) const {
    ops.gemm({.a = x, .b = w, .c = y, .bias = {}}, stream);
    ops.add(x, 0.5, y, stream);
    ops.column_sum(y, sum, stream);
  }
  // Returns the expected sum of each column after `runs` runs, by the plain formula.
  std::vector<float> expected(int runs) const {
    const int64_t rows = x.dim(0), width = x.dim(1);
    std::vector<float> sums(static_cast<size_t>(width));
    for (int64_t t = 0; t < rows; ++t) {
      double of_row = 0;
      for (int64_t d = 0; d < width; ++d) of_row += 0.25 * static_cast<double>(t * width + d + 1);
      for (int64_t d = 0; d < width; ++d)
        sums[static_cast<size_t>(d)] +=
            static_cast<float>(runs * (of_row + 0.5 * static_cast<double>(t * width + d + 1)));
    }
    return sums;
  }

  Tensor x, w, y, sum;
};

class CudaGraphs : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
  }
  void SetUp() override { make(); }
  void TearDown() override {
    unsetenv("GANGWAY_CUDA_GRAPHS");
    gpu_emulation::set(gpu_emulation::Settings());
    ops_.reset();
    device_.reset();
    EXPECT_EQ(gpu_emulation::report(), "");
    EXPECT_EQ(gpu_emulation::living(), 0);
    gpu_emulation::reset();
  }
  void make(const char* graphs = "1", const char* device = "cuda") {
    setenv("GANGWAY_CUDA_GRAPHS", graphs, 1);
    ops_.reset();
    device_.reset();
    device_ = make_device(device);
    ops_ = make_ops(device_);
  }
  Stream& stream() { return device_->stream(); }
  void run(const Layer& layer, int times = 1) {
    for (int i = 0; i < times; ++i) {
      layer.run(*ops_, stream());
      stream().submit();
    }
  }
  Tensor tensor(const Shape& shape) { return Tensor::allocate(device_->allocator(), DType::f32, shape); }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
};

// Counts the calls of a name during the lifetime of this object.
class Count {
 public:
  explicit Count(const char* name) : name_(name), before_(calls(name)) {}
  int64_t operator()() const { return calls(name_) - before_; }

 private:
  const char* const name_;
  const int64_t before_;
};

TEST_F(CudaGraphs, ASegmentIsCapturedTheSecondTimeAndOneLaunchFromThenOn) {
  const Layer layer(device_, 6, 4);
  for (int time = 1; time <= 4; ++time) {
    const Count kernels("cudaLaunchKernel"), begins("cudaStreamBeginCapture"), graphs("cudaGraphLaunch");
    layer.run(*ops_, stream());
    EXPECT_EQ(kernels() + begins() + graphs(), 0) << "operations are kept back";
    stream().submit();
    EXPECT_EQ(kernels() > 0, time <= 2) << time;
    EXPECT_EQ(begins(), time == 2 ? 1 : 0) << time;
    EXPECT_EQ(graphs(), time == 1 ? 0 : 1) << time;
  }
  EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(4));
}

TEST_F(CudaGraphs, TheSwitchTurnsGraphsOff) {
  make("0");
  const Layer layer(device_, 6, 4);
  const Count kernels("cudaLaunchKernel"), begins("cudaStreamBeginCapture"), graphs("cudaGraphLaunch");
  layer.run(*ops_, stream());
  EXPECT_GT(kernels(), 0) << "nothing is kept back";
  run(layer, 3);
  EXPECT_EQ(begins() + graphs(), 0);
  EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(4));
}

TEST_F(CudaGraphs, AGraphSwitchThatIsNoNumberIsRefused) {
  setenv("GANGWAY_CUDA_GRAPHS", "yes", 1);
  const Error error = test::error_of([] { make_device("cuda"); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("GANGWAY_CUDA_GRAPHS"), std::string::npos) << error.message();
}

TEST_F(CudaGraphs, AnotherShapeIsAnotherSegment) {
  const Layer large(device_, 9, 4);
  Layer small = large;
  small.x = large.x.slice(0, 0, 5);
  small.y = large.y.slice(0, 0, 5);
  run(large, 3);
  run(small, 3);
  run(large, 1);
  std::vector<float> want = large.expected(4);
  const std::vector<float> more = small.expected(3);
  for (size_t i = 0; i < want.size(); ++i) want[i] += more[i];
  EXPECT_EQ(test::copy_out<float>(large.sum), want);
}

TEST_F(CudaGraphs, AnotherScalarArgumentIsAnotherSegment) {
  const Tensor x = tensor({8}), y = tensor({8});
  float want = 0;
  for (const double factor : {1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 2.0}) {
    ops_->fill(x, 3, stream());
    if (want == 0) ops_->fill(y, 0, stream());
    ops_->add(x, factor, y, stream());
    stream().submit();
    want += static_cast<float>(3 * factor);
  }
  EXPECT_EQ(test::copy_out<float>(y), std::vector<float>(8, want));
}

TEST_F(CudaGraphs, OneOperationIsNoGraph) {
  const Tensor x = tensor({8});
  const Count begins("cudaStreamBeginCapture");
  for (int i = 0; i < 4; ++i) {
    ops_->fill(x, 3, stream());
    stream().submit();
  }
  EXPECT_EQ(begins(), 0);
}

// Any other use of the stream comes after the operations before it.
TEST_F(CudaGraphs, EveryOtherUseOfTheStreamLaunchesThePendingOperations) {
  const Tensor x = tensor({8}), y = tensor({8}), of_other = tensor({8});
  const auto other = device_->make_stream(StreamPriority::high);
  const auto event = device_->make_event();
  const std::function<void()> uses[] = {
      [&] { event->record(stream()); },
      [&] { stream().wait(*event); },
      [&] { stream().synchronize(); },
      [&] { stream().native(); },
      [&] { stream().submit(); },
      [&] { device_->copy(y.raw(), x.raw(), x.bytes(), stream()); },
      [&] { device_->zero(y.raw(), y.bytes(), stream()); },
      [&] { ops_->scale(y, 0.5, stream()); },
      [&] { make_ops(device_).reset(); },
  };
  for (size_t use = 0; use < std::size(uses); ++use) {
    const Count kernels("cudaLaunchKernel");
    ops_->fill(of_other, 1, *other);
    ops_->fill(x, static_cast<double>(use), stream());
    EXPECT_EQ(kernels(), 0) << use;
    uses[use]();
    EXPECT_GE(kernels(), 1) << use;
    stream().synchronize();
    other->synchronize();
  }
}

TEST_F(CudaGraphs, ALongRunOfOperationsIsStartedInParts) {
  const Tensor x = tensor({8});
  const Count kernels("cudaLaunchKernel");
  for (int i = 0; i < 100; ++i) ops_->fill(x, i, stream());
  EXPECT_GE(kernels(), 32);
  EXPECT_EQ(test::copy_out<float>(x), std::vector<float>(8, 99));
}

TEST_F(CudaGraphs, TwoStreamsHaveSegmentsOfTheirOwn) {
  const auto other = device_->make_stream(StreamPriority::normal);
  const auto event = device_->make_event();
  const Layer layer(device_, 6, 4);
  for (int i = 0; i < 4; ++i) {
    layer.run(*ops_, stream());
    event->record(stream());
    other->wait(*event);
    layer.run(*ops_, *other);
    event->record(*other);
    stream().wait(*event);
  }
  EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(8));
}

// The software GPU reports a graph that uses freed memory.
TEST_F(CudaGraphs, AWorkspaceThatGrowsMakesNewGraphs) {
  const Tensor few = tensor({4, 8}), sum = tensor({8}), many = tensor({600, 100}), wide = tensor({100});
  const auto add_up = [&] {
    ops_->fill(sum, 0, stream());
    ops_->column_sum(few, sum, stream());
    stream().submit();
  };
  ops_->fill(few, 2, stream());
  ops_->fill(many, 1, stream());
  ops_->fill(wide, 0, stream());
  stream().synchronize();
  for (int i = 0; i < 3; ++i) add_up();
  ops_->column_sum(many, wide, stream());
  stream().synchronize();
  const Count begins("cudaStreamBeginCapture");
  for (int i = 0; i < 3; ++i) add_up();
  EXPECT_EQ(begins(), 1);
  EXPECT_EQ(test::copy_out<float>(sum), std::vector<float>(8, 8));
}

// A freed block and a later block at the same address are the same argument.
TEST_F(CudaGraphs, ABufferThatIsFreedAndTakenAgainIsTheSameArgument) {
  make("1", "cuda:5");  // a device whose addresses no other test has used
  const Tensor out = tensor({8});
  ops_->fill(out, 0, stream());
  const auto use = [&](const Tensor& x) {
    ops_->fill(x, 2, stream());
    ops_->add(x, 1, out, stream());
    stream().synchronize();
  };
  const void* address = nullptr;
  {
    const Tensor x = tensor({8});
    address = x.raw();
    for (int i = 0; i < 3; ++i) use(x);
  }
  // The software GPU reuses its lowest addresses when it finds no others.
  gpu_emulation::Settings settings;
  settings.memory = uint64_t{64} << 30;
  gpu_emulation::set(settings);
  EXPECT_THROW(Tensor::allocate(device_->allocator(), DType::u8, {int64_t{20} << 30}), Error);
  gpu_emulation::set(gpu_emulation::Settings());
  std::vector<Tensor> taken;
  while (taken.size() < 100 && (taken.empty() || taken.back().raw() != address)) taken.push_back(tensor({8}));
  const Tensor x = taken.back();
  ASSERT_EQ(x.raw(), address);
  const Count graphs("cudaGraphLaunch");
  use(x);
  EXPECT_EQ(graphs(), 1);
  EXPECT_EQ(test::copy_out<float>(out), std::vector<float>(8, 8));
}

// Any thread may free blocks while a segment is captured.
TEST_F(CudaGraphs, BlocksMayBeFreedElsewhereWhileASegmentIsCaptured) {
  const Layer layer(device_, 6, 4);
  std::vector<Tensor> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(tensor({8}));
  std::atomic<bool> freed = false;
  std::thread other([&] {
    for (Tensor& block : blocks) {
      block = {};
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    freed = true;
  });
  const Tensor x = tensor({8});
  int runs = 0;
  for (int i = 0; i < 60 || !freed; ++i)
    for (int twice = 0; twice < 2; ++twice) {
      ops_->fill(x, i, stream());
      layer.run(*ops_, stream());
      stream().submit();
      ++runs;
    }
  other.join();
  stream().synchronize();
  EXPECT_GE(runs, 120);
  ops_->fill(layer.sum, 0, stream());
  run(layer);
  EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(1));
}

// When memory runs out, the operations that own the last references to memory are started first.
TEST_F(CudaGraphs, AnAllocationWithoutMemoryLaunchesThePendingOperations) {
  gpu_emulation::Settings settings;
  settings.memory = 3 << 20;
  gpu_emulation::set(settings);
  for (int i = 0; i < 4; ++i) ops_->fill(tensor({1 << 19}), 1, stream());
  gpu_emulation::set(gpu_emulation::Settings());
}

TEST_F(CudaGraphs, PendingOperationsOfADestroyedDeviceFreeTheirMemory) {
  ops_->fill(tensor({8}), 1, stream());
  ops_->fill(tensor({8}), 1, stream());
  ops_.reset();
  device_.reset();
  EXPECT_EQ(gpu_emulation::living(), 0);
}

// The number of segments is limited. Graphs that were not used for a long time are destroyed.
TEST_F(CudaGraphs, SegmentsThatNeverComeAgainDoNotPileUp) {
  const Tensor x = tensor({1}), y = tensor({1});
  const auto pair = [&](int i) {
    ops_->fill(x, i, stream());
    ops_->cast(x, y, stream());
    stream().submit();
  };
  const int64_t before = gpu_emulation::living();
  for (int i = 0; i < 3000; ++i) {
    pair(i % 3 == 0 ? i : 1);  // pair 1 comes often, so it stays
    if (i % 3 == 0) pair(i);
  }
  EXPECT_LE(gpu_emulation::living() - before, 2048);
  for (int i = 3000; i < 5500; ++i) {
    pair(i);
    if (i % 100 == 0) pair(1);
  }
  EXPECT_LE(gpu_emulation::living() - before, 2048);
  const Count kernels("cudaLaunchKernel");
  pair(1);
  EXPECT_EQ(kernels(), 0);
  EXPECT_EQ(test::copy_out<float>(y), std::vector<float>(1, 1));
}

// A caller may capture the stream, and gets the kernels of the operations.
TEST_F(CudaGraphs, ACallersOwnCaptureHasTheOperations) {
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking, 0), cudaSuccess);
  {
    const Layer layer(device_, 6, 4);
    Stream& wrapped = device_->wrap_stream(native);
    for (int i = 0; i < 3; ++i) {  // until they are a graph
      layer.run(*ops_, wrapped);
      wrapped.synchronize();
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    {
      const Tensor freed = tensor({8});  // within the capture
      layer.run(*ops_, wrapped);
      wrapped.submit();
    }
    const Tensor taken = tensor({8});
    ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess) << gpu_emulation::report();
    ASSERT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(made, native), cudaSuccess);
    wrapped.synchronize();
    ASSERT_EQ(cudaGraphExecDestroy(made), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(5));
  }
  ops_.reset();
  device_.reset();
  ASSERT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

// Whichever call of a capture fails, its operations run one by one, and the log says so once.
TEST_F(CudaGraphs, ASegmentThatCannotBeCapturedRunsWithoutAGraphAndTheLogSaysItOnce) {
  const auto lines = [first = log_lines(0).size()] {
    size_t count = 0;
    for (const LogLine& line : log_lines(first))
      if (line.level == LogLevel::warning && line.message.find("run one by one") != std::string::npos)
        ++count;
    return count;
  };
  size_t told = 0;
  for (const char* const name : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
                                 "cudaLaunchKernel", "cublasLtMatmul", "cudaStreamCreateWithPriority"}) {
    make();
    const Layer layer(device_, 6, 4), other(device_, 5, 4);
    run(layer);
    gpu_emulation::fail_call(name, 1, cudaErrorUnknown);
    const Count begins("cudaStreamBeginCapture");
    run(layer, 3);
    const int64_t tried = begins();
    EXPECT_LE(tried, 1) << name << ": a segment that could not be captured is tried again";
    EXPECT_EQ(lines(), ++told) << name;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    ASSERT_EQ(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream().native()), &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone) << name;
    EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(4)) << name;
    const Count graphs("cudaGraphLaunch");
    run(other, 3);
    EXPECT_EQ(graphs(), 2) << name << ": other segments are captured still";
    EXPECT_EQ(test::copy_out<float>(other.sum), other.expected(3)) << name;
  }
  make();
  const Layer first(device_, 6, 4), second(device_, 5, 4);
  for (const Layer* const layer : {&first, &second}) {
    run(*layer);
    gpu_emulation::fail_call("cudaGraphInstantiate", 1, cudaErrorUnknown);
    run(*layer);
  }
  EXPECT_EQ(lines(), told + 1) << "the second failure of a stream is not told again";
}

// An operation that fails in its capture and again after it fails the segment.
TEST_F(CudaGraphs, AnOperationThatFailsAlsoWithoutAGraphIsReported) {
  const Layer layer(device_, 6, 4);
  run(layer);
  gpu_emulation::fail_call("cudaStreamBeginCapture", 1, cudaErrorUnknown);
  gpu_emulation::fail_call("cudaLaunchKernel", 1, cudaErrorUnknown);
  layer.run(*ops_, stream());
  EXPECT_NE(test::error_of([&] { stream().submit(); }).message(), "");
}

// Whichever other call fails, the error says what to do, no stream is left capturing, and the next run is
// right.
TEST_F(CudaGraphs, ACallThatFailsBesideACaptureIsReportedAndTheStreamGoesOn) {
  for (const char* const name : {"cudaGraphLaunch", "cudaStreamIsCapturing"}) {
    make();
    const Layer layer(device_, 6, 4);
    run(layer);
    gpu_emulation::fail_call(name, 1, cudaErrorUnknown);
    layer.run(*ops_, stream());
    const Error error = test::error_of([&] { stream().submit(); });
    EXPECT_NE(error.message(), "") << name;
    EXPECT_EQ(error.message().find("GANGWAY_CUDA_GRAPHS=0") != std::string::npos,
              std::string(name) == "cudaGraphLaunch")
        << name << ": " << error.message();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    ASSERT_EQ(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream().native()), &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone) << name;
    run(layer, 2);
    EXPECT_EQ(test::copy_out<float>(layer.sum), layer.expected(3)) << name;
  }
}

}  // namespace
}  // namespace gangway
