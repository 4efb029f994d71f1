// The dimensions of a tensor: up to 8, stored inline.
//
// Thread rule: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace gangway {

constexpr int kMaxDims = 8;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  // INVALID_ARGUMENT: there are more than 8 dims, a dim is negative, or there are more than 2^58 elements.
  // With that limit, the bytes of every dtype fit in 63 bits.
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims_[static_cast<size_t>(i)]; }
  int64_t back() const { return dims_[static_cast<size_t>(rank_ - 1)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  int64_t count() const;            // the product of all dims; 1 if there are none
  int64_t count_from(int i) const;  // the product of dims i and later: the elements of one row of dim i - 1
  std::string text() const;         // "[2, 3]"

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int rank_ = 0;
};

// Returns the strides, in elements, of a row-major tensor.
std::array<int64_t, kMaxDims> row_major(const Shape& shape);

}  // namespace gangway
