// A sum in the making: memory whose contents are undefined until the first term is written, and the flag that says
// which of the two it is. Every gradient, full or local, is one; where both lie in the same memory they are one object.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <utility>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace gangway {

// For an operation with a beta: `accumulate` is false for the first term.
struct GradientTarget {
  Tensor grad;
  bool accumulate;
};

struct Accumulator {
  Tensor tensor;
  bool written = false;

  // The caller writes or adds the next term itself.
  GradientTarget target();
  // Adds a term of the same shape, in any floating dtype.
  void add(Ops& ops, const Tensor& term, Stream& stream);
  // The sum to read or to add to: zero if nothing was added.
  const Tensor& zero_if_unwritten(Ops& ops, Stream& stream);
};

inline std::shared_ptr<Accumulator> make_accumulator(Tensor tensor) {
  return std::make_shared<Accumulator>(Accumulator{std::move(tensor), false});
}

}  // namespace gangway
