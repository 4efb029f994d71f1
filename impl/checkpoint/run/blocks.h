// Cuts tensors into blocks of at most kBlockBytes.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <string>

#include "checkpoint/run/state.h"
#include "tensor/layout.h"

namespace gangway {

// Calls use(box, at) for the boxes that cut a tensor of this shape, in row-major order. Each is one run of
// elements of the row-major tensor, from element `at` on. A tensor without elements has none.
template <typename Use>
void for_each_block(const Shape& shape, size_t item, Use&& use) {
  const auto most = static_cast<int64_t>(kBlockBytes / item);
  int d = 0;  // the dim whose rows are dealt out to blocks; in dims before it, a block has one row
  while (d < shape.rank() && shape.count_from(d + 1) > most) ++d;
  if (shape.count() == 0) return;
  if (shape.rank() == 0) return use(whole_box(shape), int64_t{0});
  const int64_t row = shape.count_from(d + 1), most_rows = most / row;
  Box box = whole_box(shape);
  for (int before = 0; before < d; ++before) box.shape[before] = 1;
  for (int64_t at = 0; at < shape.count(); at += box.shape[d] * row) {
    int64_t rest = at / row;
    for (int i = d; i >= 0; --i) {
      box.first[static_cast<size_t>(i)] = rest % shape[i];
      rest /= shape[i];
    }
    box.shape[d] = std::min(most_rows, shape[d] - box.first[static_cast<size_t>(d)]);
    use(static_cast<const Box&>(box), at);
  }
}

inline uint64_t bytes_of(const Shape& shape, size_t item) {
  return static_cast<uint64_t>(shape.count()) * item;
}

// Returns whether a box lies inside a tensor of this shape.
bool is_inside(const Box& box, const Shape& shape);

std::string text_of(const Box& box);  // "[0:32, 16:24]"

}  // namespace gangway
