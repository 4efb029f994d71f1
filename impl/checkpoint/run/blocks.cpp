#include "checkpoint/run/blocks.h"

namespace gangway {

bool is_inside(const Box& box, const Shape& shape) {
  if (box.shape.rank() != shape.rank()) return false;
  for (int d = 0; d < shape.rank(); ++d)
    if (box.first[static_cast<size_t>(d)] < 0 || box.last(d) > shape[d]) return false;
  return true;
}

std::string text_of(const Box& box) {
  std::string out = "[";
  for (int d = 0; d < box.shape.rank(); ++d)
    out += (d > 0 ? ", " : "") + std::to_string(box.first[static_cast<size_t>(d)]) + ":" +
           std::to_string(box.last(d));
  return out + "]";
}

}  // namespace gangway
