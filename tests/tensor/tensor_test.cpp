#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace gangway {
namespace {

Code code_of(const std::vector<int64_t>& dims) {
  try {
    const Shape shape{std::span<const int64_t>(dims)};
  } catch (const Error& error) {
    return error.code();
  }
  return Code::ok;
}

TEST(Shape, RefusesNegativeDimsTooManyDimsAndOverflow) {
  EXPECT_EQ(code_of({}), Code::ok);
  EXPECT_EQ(code_of({0, 5}), Code::ok);
  EXPECT_EQ(code_of({3, -1}), Code::invalid_argument);
  EXPECT_EQ(code_of({1, 1, 1, 1, 1, 1, 1, 1, 1}), Code::invalid_argument);
  EXPECT_EQ(code_of({int64_t{1} << 40, int64_t{1} << 40}), Code::invalid_argument);
}

// 2^61 doubles would be 2^64 bytes, which a size counts as 0.
TEST(Shape, BytesOfEveryDTypeFitASize) {
  EXPECT_EQ(code_of({int64_t{1} << 58}), Code::ok);
  EXPECT_EQ(code_of({(int64_t{1} << 58) + 1}), Code::invalid_argument);
  EXPECT_EQ(code_of({int64_t{1} << 30, int64_t{1} << 31}), Code::invalid_argument);
  EXPECT_EQ(code_of({0, int64_t{1} << 61}), Code::invalid_argument);
  const Tensor largest = Tensor::allocate(make_device("meta")->allocator(), DType::c128, {int64_t{1} << 58});
  EXPECT_EQ(largest.bytes(), size_t{1} << 62);
}

TEST(Shape, CountsAndPrints) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.count(), 24);
  EXPECT_EQ(shape.count_from(1), 12);
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{5, 0}).count(), 0);
  EXPECT_EQ(shape.text(), "[2, 3, 4]");
}

class Views : public ::testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_device("cpu");
  std::vector<float> data_ = std::vector<float>(24);
  Tensor tensor_ = Tensor::borrow(*device_, data_.data(), DType::f32, {2, 3, 4});
};

TEST_F(Views, ASliceStartsAtItsFirstRow) {
  const Tensor s = tensor_.slice(1, 1, 3);
  EXPECT_EQ(s.shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(s.data<float>(), data_.data() + 4);
  EXPECT_FALSE(s.contiguous());
  EXPECT_TRUE(tensor_.slice(0, 1, 2).contiguous());
  EXPECT_TRUE(tensor_.slice(1, 2, 2).contiguous());  // empty
}

TEST_F(Views, ATransposeSwapsStridesAndIsItsOwnInverse) {
  const Tensor t = tensor_.transpose(0, 2);
  EXPECT_EQ(t.shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(t.stride(0), 1);
  EXPECT_EQ(t.stride(2), 12);
  EXPECT_TRUE(t.transpose(0, 2).contiguous());
}

TEST_F(Views, FlatteningKeepsTheLastDim) {
  EXPECT_EQ(tensor_.flatten2().shape(), (Shape{6, 4}));
  const Tensor none = Tensor::borrow(*device_, nullptr, DType::f32, {3, 0, 4});
  EXPECT_EQ(none.flatten2().shape(), (Shape{0, 4}));
}

// As columns of an output without tokens are, for which a stack has no byte left.
TEST_F(Views, FlatteningTakesAnEmptyViewThatBeginsBehindItsBuffer) {
  const Tensor none = tensor_.slice(0, 2, 2).slice(2, 1, 3);
  EXPECT_EQ(none.byte_offset(), tensor_.bytes() + item_bytes(tensor_.dtype()));
  EXPECT_EQ(none.flatten2().shape(), (Shape{0, 2}));
}

TEST_F(Views, FlatteningKeepsEqualGapsBetweenRowsAndRefusesOthers) {
  const Tensor rows = tensor_.slice(2, 1, 3).flatten2();
  EXPECT_EQ(rows.shape(), (Shape{6, 2}));
  EXPECT_EQ(rows.stride(0), 4);
  EXPECT_EQ(rows.byte_offset(), tensor_.byte_offset() + item_bytes(tensor_.dtype()));
  EXPECT_EQ(tensor_.slice(1, 1, 2).flatten2().stride(0), 12);
  EXPECT_EQ(tensor_.slice(2, 3, 3).flatten2().shape(), (Shape{6, 0}));
  EXPECT_THROW(tensor_.slice(1, 0, 2).flatten2(), Error);
}

TEST_F(Views, MisuseIsAnInternalError) {
  EXPECT_THROW(tensor_.slice(0, 1, 3), Error);
  EXPECT_THROW(tensor_.reshape({5, 5}), Error);
  EXPECT_THROW(tensor_.transpose(0, 1).reshape({24}), Error);
}

TEST(Buffer, KeepsABorrowedOwnerAliveUntilTheLastTensorGoes) {
  const auto device = make_device("cpu");
  auto owner = std::make_shared<std::vector<double>>(4, 1.0);
  const std::weak_ptr<std::vector<double>> alive = owner;
  Tensor tensor(Buffer::borrow(*device, MemoryKind::host, owner->data(), 32, owner), 0, DType::f64, {4});
  owner.reset();
  EXPECT_FALSE(alive.expired());
  Tensor view = tensor.slice(0, 1, 2);
  tensor = Tensor();
  EXPECT_EQ(view.data<double>()[0], 1.0);
  view = Tensor();
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace gangway
