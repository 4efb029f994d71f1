#include "checkpoint/run/cover.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace gangway {
namespace {

// A function on the grid that counts in how many boxes an element lies is the sum, over all corners that do
// not lie behind the element in any dim, of +1 or -1 for each corner of each box. So boxes cover a tensor
// exactly once if their corners sum up to those of the whole tensor.
struct Corner {
  std::array<int64_t, kMaxDims> at{};
  int64_t sign = 1;
};

void add_corners(const Box& box, const std::vector<int>& dims, int64_t sign, std::vector<Corner>& corners) {
  for (uint32_t upper = 0; upper < 1u << dims.size(); ++upper) {
    Corner corner{{}, sign};
    for (size_t i = 0; i < dims.size(); ++i) {
      const int d = dims[i];
      const bool last = (upper >> i & 1) != 0;
      corner.at[static_cast<size_t>(d)] = last ? box.last(d) : box.first[static_cast<size_t>(d)];
      if (last) corner.sign = -corner.sign;
    }
    corners.push_back(corner);
  }
}

std::string text_of(const std::array<int64_t, kMaxDims>& at, int dims) {
  std::string out = "[";
  for (int d = 0; d < dims; ++d) out += (d > 0 ? ", " : "") + std::to_string(at[static_cast<size_t>(d)]);
  return out + "]";
}

}  // namespace

std::string gap_or_overlap(const std::vector<const Box*>& boxes, const Shape& shape) {
  if (shape.count() == 0) return "";
  std::vector<int> dims;  // those that some box does not span
  for (int d = 0; d < shape.rank(); ++d)
    if (std::any_of(boxes.begin(), boxes.end(), [&](const Box* box) { return box->shape[d] != shape[d]; }))
      dims.push_back(d);
  std::vector<Corner> corners;
  add_corners(whole_box(shape), dims, -1, corners);
  for (const Box* box : boxes) add_corners(*box, dims, 1, corners);
  std::sort(corners.begin(), corners.end(), [](const Corner& a, const Corner& b) { return a.at < b.at; });
  for (size_t i = 0; i < corners.size();) {
    const auto& at = corners[i].at;
    int64_t sum = 0;
    for (; i < corners.size() && corners[i].at == at; ++i) sum += corners[i].sign;
    // All corners before this one cancel, so `sum` is what is wrong with the count of the element at it.
    if (sum != 0) return text("element ", text_of(at, shape.rank()), " is in ", sum + 1, " blocks");
  }
  return "";
}

}  // namespace gangway
