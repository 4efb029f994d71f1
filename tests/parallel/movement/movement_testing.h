// Tools for tests of movements: partitions of a test's gang, tensors of its ranks, and makers of modules.
#pragma once

#include "parallel/movement/movement.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {

using List = std::vector<int>;

inline Partition world(Gang& gang) { return Partition(gang.shared_from_this()); }
inline Tensor filled(Gang& gang, const Shape& shape, uint32_t seed) {
  return make(
      gang.device(), DType::f64, shape,
      random_vector(static_cast<size_t>(shape.count()), seed + 100 * static_cast<uint32_t>(gang.rank())));
}
inline Tensor nothing(Gang& gang) {
  return Tensor::allocate(gang.device().allocator(), DType::f64, Shape{0});
}

inline MovementOptions along(List axes) {
  MovementOptions options;
  options.axes = std::move(axes);
  return options;
}

inline ModulePtr movement(Movement kind, const Partition& source, const MovementOptions& options) {
  return make_movement(kind, source, nullptr, options);
}
inline ModulePtr between(Movement kind, const Partition& source, const Partition& target,
                         MovementOptions options = {}) {
  return make_movement(kind, source, &target, options);
}

}  // namespace gangway::test
