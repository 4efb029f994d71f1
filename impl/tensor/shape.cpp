#include "tensor/shape.h"

#include "base/error.h"

namespace gangway {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 58;

}  // namespace

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxDims)
    fail(Code::invalid_argument, "a tensor has ", dims.size(), " dims, more than ", kMaxDims);
  int64_t count = 1;
  for (const int64_t d : dims) {
    if (d < 0) fail(Code::invalid_argument, "dim ", rank_, " of a tensor is ", d);
    dims_[static_cast<size_t>(rank_++)] = d;
    if (d != 0 && (__builtin_mul_overflow(count, d, &count) || count > kMostElements))
      fail(Code::invalid_argument, "a tensor of ", text(), " has more than 2^58 elements");
  }
}

int64_t Shape::count() const { return count_from(0); }

int64_t Shape::count_from(int i) const {
  int64_t n = 1;
  for (; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
  return n;
}

std::string Shape::text() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) s += (i > 0 ? ", " : "") + std::to_string((*this)[i]);
  return s + "]";
}

std::array<int64_t, kMaxDims> row_major(const Shape& shape) {
  std::array<int64_t, kMaxDims> strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = step;
    step *= shape[i];
  }
  return strides;
}

}  // namespace gangway
