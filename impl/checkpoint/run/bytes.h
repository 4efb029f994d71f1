// Packs numbers and texts into bytes that writers of several ranks exchange. Peers run the same program, so
// the bytes are trusted.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tensor/layout.h"

namespace gangway {

class BytesOut {
 public:
  void add(uint64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(std::string_view text) {
    add(text.size());
    bytes_ += text;
  }
  void add(const Shape& shape) {
    add(static_cast<uint64_t>(shape.rank()));
    for (const int64_t dim : shape.dims()) add(static_cast<uint64_t>(dim));
  }
  void add(const Box& box) {
    add(box.shape);
    for (int d = 0; d < box.shape.rank(); ++d) add(static_cast<uint64_t>(box.first[static_cast<size_t>(d)]));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class BytesIn {
 public:
  explicit BytesIn(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  uint64_t number() {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number())); }
  Shape shape() {
    int64_t dims[kMaxDims];
    const size_t rank = number();
    GW_CHECK(rank, <=, size_t{kMaxDims});
    for (size_t d = 0; d < rank; ++d) dims[d] = static_cast<int64_t>(number());
    return Shape(std::span<const int64_t>(dims, rank));
  }
  Box box() {
    Box box{{}, shape()};
    for (int d = 0; d < box.shape.rank(); ++d)
      box.first[static_cast<size_t>(d)] = static_cast<int64_t>(number());
    return box;
  }

 private:
  std::string_view take(size_t bytes) {
    GW_CHECK(bytes, <=, rest_.size());
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::string_view rest_;
};

}  // namespace gangway
