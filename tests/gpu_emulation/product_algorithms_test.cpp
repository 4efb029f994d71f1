// The choice among cuBLASLt's algorithms. The software GPU answers with planted ones, which take planted
// times (blas.h). A product is logged with the index of its algorithm.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "base/error_of.h"
#include "gpu_emulation/blas.h"
#include "gpu_emulation/emulator.h"
#include "gpu_emulation/log.h"
#include "ops/ops.h"
#include "support/host_memory.h"
#include "support/placed.h"

namespace gangway {
namespace {

using gpu_emulation::Answer;
using gpu_emulation::plant_answers;
using Indices = std::vector<size_t>;

constexpr int kRunsOfAnAnswer = 4;

class ProductAlgorithms : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
  }
  void SetUp() override { make(); }
  void TearDown() override {
    for (const char* const name : {"GANGWAY_CUDA_GRAPHS", "GANGWAY_CUDA_TUNING"}) unsetenv(name);
    plant_answers({});
    ops_.reset();
    device_.reset();
    EXPECT_EQ(gpu_emulation::report(), "");
    gpu_emulation::reset();
    gpu_emulation::set(gpu_emulation::Settings());
    EXPECT_EQ(gpu_emulation::living(), 0);
  }
  void make(const char* graphs = "0", const char* tuning = "1") {
    setenv("GANGWAY_CUDA_GRAPHS", graphs, 1);
    setenv("GANGWAY_CUDA_TUNING", tuning, 1);
    ops_.reset();
    device_ = make_device("cuda");
    ops_ = make_ops(device_);
  }
  // A tensor with values whose sums have rounding errors, so that their order shows.
  Tensor tensor(const Shape& shape, bool zeros = false) const {
    const Tensor t = Tensor::allocate(device_->allocator(), DType::f32, shape);
    std::vector<float> values(static_cast<size_t>(shape.count()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = zeros ? 0 : 1 / (1 + static_cast<float>(i * 37 % 101));
    test::copy_in(t, values);
    return t;
  }
  struct Product {
    Tensor a, b, c;
    std::vector<float> values() const { return test::copy_out<float>(c); }
  };
  Product product(int64_t m, int64_t k, int64_t n) const {
    return {tensor({m, k}), tensor({k, n}), tensor({m, n})};
  }
  void start(const Product& p, bool accumulate = false) const {
    ops_->gemm({.a = p.a, .b = p.b, .c = p.c, .bias = {}, .accumulate = accumulate}, device_->stream());
    device_->stream().submit();
  }
  // Returns the algorithms of the products that the call started.
  Indices run(const Product& p, bool accumulate = false) const {
    gpu_emulation::start_log();
    start(p, accumulate);
    return indices();
  }
  static Indices indices() {
    Indices all;
    for (const gpu_emulation::Entry& entry : gpu_emulation::take_log())
      if (entry.work == gpu_emulation::Work::product) all.push_back(entry.answer);
    return all;
  }
  // Returns the indices of a first use that measures `tried` and takes `kept`.
  static Indices measured(const Indices& tried, size_t kept) {
    Indices all;
    for (const size_t answer : tried) all.insert(all.end(), kRunsOfAnAnswer, answer);
    all.push_back(kept);
    return all;
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
};

TEST_F(ProductAlgorithms, TheFastestOfAShapeIsKept) {
  plant_answers({{5}, {3}, {1}, {4}});
  for (const auto& [m, k, n] : {std::tuple(1, 1, 1), std::tuple(3, 5, 7), std::tuple(130, 33, 65)}) {
    const Product first = product(m, k, n), second = product(m, k, n);
    EXPECT_EQ(run(first), measured({0, 1, 2, 3}, 2)) << m;
    plant_answers({{1}, {2}, {3}, {4}});
    EXPECT_EQ(run(second), Indices{2}) << "it is not measured again";
    plant_answers({{5}, {3}, {1}, {4}});
  }
  EXPECT_TRUE(run(product(0, 5, 7)).empty());
}

TEST_F(ProductAlgorithms, AtMostEightAnswersAreMeasured) {
  std::vector<Answer> many(20);
  for (size_t i = 0; i < many.size(); ++i) many[i].milliseconds = 20 - static_cast<double>(i);
  plant_answers(many);
  EXPECT_EQ(run(product(3, 5, 7)).back(), 7u);
}

TEST_F(ProductAlgorithms, NumbersDoNotDependOnTimes) {
  const std::vector<Answer> answers = {{5}, {1, 1, true}, {2, 4}, {3, 1, false, true}, {4}};
  plant_answers({});
  const Product expected = product(40, 300, 9);
  start(expected);
  plant_answers(answers);
  make();
  const Product other = product(40, 300, 9);
  EXPECT_EQ(run(other), measured({0, 1, 4}, 4))
      << "answer 1 adds up in another order, 2 splits sums, and 3 is refused";
  EXPECT_EQ(other.values(), expected.values());
  plant_answers({{5, 1, true}});  // the order does show
  make();
  const Product backwards = product(40, 300, 9);
  start(backwards);
  EXPECT_NE(backwards.values(), expected.values());
}

TEST_F(ProductAlgorithms, AnAnswerIsTakenOnlyIfTheBitsProveSomething) {
  plant_answers({{5}, {1}});
  const Product zeros = {tensor({4, 6}, true), tensor({6, 5}), tensor({4, 5})};
  EXPECT_EQ(run(zeros), measured({0}, 0));
}

// With gaps between the rows of the result, which others own, and without.
TEST_F(ProductAlgorithms, AProductThatAddsIsMeasuredInTheMemoryOfItsResult) {
  for (const bool gaps : {false, true}) {
    const auto part_of = [&](const Product& whole) {
      return gaps ? Product{whole.a, tensor({30, 9}), whole.c.slice(1, 4, 13)} : whole;
    };
    plant_answers({});
    make();
    const Product expected = product(20, 30, 18);
    start(part_of(expected), true);
    const std::vector<float> sums = expected.values();
    plant_answers({{5}, {1}});
    make();
    const Product other = product(20, 30, 18);
    start(product(1, 1, 1));  // which takes the workspace
    EXPECT_EQ(run(part_of(other), true), measured({0, 1}, 1));
    EXPECT_EQ(other.values(), sums) << gaps;
    EXPECT_EQ(run(part_of(other), true), Indices{1});
  }
}

// A plan counts the memory of the device, so a product must not need more of it.
TEST_F(ProductAlgorithms, AMeasurementTakesNoMemoryOfTheDevice) {
  plant_answers({{5}, {1}});
  const Product p = product(4096, 1, 64);  // whose result has 1 MiB
  start(product(1, 1, 1));                 // which takes the workspace
  device_->stream().synchronize();
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  gpu_emulation::Settings small;
  small.memory = total - free;
  gpu_emulation::set(small);
  EXPECT_EQ(run(p, true), measured({0, 1}, 1));
  device_->stream().synchronize();
}

TEST_F(ProductAlgorithms, WithoutPinnedMemoryTheFirstAnswerIsKept) {
  plant_answers({{5}, {1}});
  const Product p = product(4096, 1, 65);  // of which 1 MiB is compared, a size that no free block has
  start(product(1, 1, 1));
  gpu_emulation::Settings none;
  none.pinned = false;
  gpu_emulation::set(none);
  EXPECT_EQ(run(p, true), Indices{0});
  gpu_emulation::set(gpu_emulation::Settings());
  EXPECT_EQ(run(p, true), Indices{0}) << "an allocation that fails is not tried at each use";
}

TEST_F(ProductAlgorithms, RowsWithGapsBetweenThemAreCompared) {
  plant_answers({{5}, {1, 1, true}, {2}});
  for (const int64_t rows : {1, 2, 40}) {
    const Product whole = product(rows, 300, 18);
    const Product part = {whole.a, tensor({300, 9}), whole.c.slice(1, 0, 9)};
    EXPECT_EQ(run(part), measured({0, 1, 2}, 2)) << rows;
  }
}

// A sum that is rounded to bf16 shows its order in one of some thousand elements.
TEST_F(ProductAlgorithms, ANarrowResultIn16BitsIsComparedInManyRows) {
  plant_answers({{5}, {1, 1, true}});
  const auto in_bf16 = [&](const Shape& shape) {
    const Tensor t = Tensor::allocate(device_->allocator(), DType::bf16, shape);
    std::vector<bf16_t> values(static_cast<size_t>(shape.count()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = to_bf16(static_cast<float>(i * 7919 % 10007) / 5003 - 1);
    test::copy_in(t, values);
    return t;
  };
  EXPECT_EQ(run({in_bf16({4096, 64}), in_bf16({64, 16}), in_bf16({4096, 16})}), measured({0, 1}, 0));
}

TEST_F(ProductAlgorithms, AnswersWhoseStateIsNoSuccessAreLeftOut) {
  const std::vector<Answer> answers = {{1, 1, false, false, true}, {3}, {1, 1, false, false, true}, {2}};
  for (const char* const tuning : {"0", "1"}) {
    plant_answers(answers);
    make("0", tuning);
    EXPECT_EQ(run(product(3, 5, 7)), tuning[0] == '0' ? Indices{1} : measured({1, 3}, 3));
  }
  plant_answers({answers[0]});
  EXPECT_EQ(test::error_of([&] { run(product(5, 7, 3)); }).code(), Code::not_supported);
}

TEST_F(ProductAlgorithms, NothingIsMeasuredWhileTheCallerCaptures) {
  plant_answers({{5}, {1}});
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking, 0), cudaSuccess);
  {
    const Product p = product(20, 30, 9);
    Stream& wrapped = device_->wrap_stream(native);
    ops_->gemm({.a = tensor({2, 2}), .b = tensor({2, 2}), .c = tensor({2, 2}), .bias = {}}, wrapped);
    wrapped.synchronize();  // it has a workspace
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal), cudaSuccess);
    gpu_emulation::start_log();
    ops_->gemm({.a = p.a, .b = p.b, .c = p.c, .bias = {}}, wrapped);
    EXPECT_EQ(indices(), Indices{0});
    ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess) << gpu_emulation::report();
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(run(p), measured({0, 1}, 1));
  }
  ops_.reset();
  device_.reset();
  ASSERT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

TEST_F(ProductAlgorithms, AGraphHoldsTheFastest) {
  plant_answers({{5}, {1}});
  make("1");
  const Product p = product(20, 30, 9);
  const auto twice = [&] {
    ops_->gemm({.a = p.a, .b = p.b, .c = p.c, .bias = {}}, device_->stream());
    return run(p, true);
  };
  EXPECT_EQ(twice(), [&] {
    Indices all = measured({0, 1}, 1);
    all.push_back(1);  // the second product has the same shape
    return all;
  }());
  EXPECT_EQ(twice(), (Indices{1, 1}));  // captured
  EXPECT_EQ(twice(), Indices{});        // one launch
}

TEST_F(ProductAlgorithms, TuningCanBeSwitchedOff) {
  plant_answers({{5}, {1}});
  make("0", "0");
  EXPECT_EQ(run(product(20, 30, 9)), Indices{0});
  EXPECT_NE(describe_paths(*ops_).find("products: cuBLASLt, its first algorithm for each shape"),
            std::string::npos);
}

TEST_F(ProductAlgorithms, EveryCallMayFail) {
  plant_answers({{5}, {1}});
  const auto run_some = [&] {
    make();
    const Product p = product(4, 6, 5);
    start(p, true);
    start(p);
    device_->stream().synchronize();
  };
  const int64_t before = gpu_emulation::calls("*");
  run_some();
  const int64_t all = gpu_emulation::calls("*") - before;
  int failed = 0;
  for (int n = 1; n <= all; ++n) {
    gpu_emulation::fail_call("*", n, cudaErrorUnknown);
    try {
      run_some();
    } catch (const Error& error) {
      EXPECT_FALSE(error.message().empty());
      ++failed;
    }
    gpu_emulation::reset();
  }
  EXPECT_GT(failed, all / 2);
  run_some();
}

}  // namespace
}  // namespace gangway
