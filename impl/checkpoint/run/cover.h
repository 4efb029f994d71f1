// Whether boxes cover a tensor.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tensor/layout.h"

namespace gangway {

// Returns an empty text if the boxes, which lie inside the shape, cover each element of a tensor exactly
// once; otherwise an element that they do not, as "element [3, 0] is in 2 blocks". Takes time N log N.
std::string gap_or_overlap(const std::vector<const Box*>& boxes, const Shape& shape);

}  // namespace gangway
