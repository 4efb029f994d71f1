// An accumulator is a tensor that terms are added to, and a flag that says whether the first term was
// written. Until then the contents of the tensor are undefined. Every gradient, full or local, is an
// accumulator; where the full and the local gradient lie in the same memory, they are one object.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <utility>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace gangway {

// Where an operation writes a gradient: it overwrites `grad` if `accumulate` is false (the first term), else
// it adds.
struct GradientTarget {
  Tensor grad;
  bool accumulate;
};

struct Accumulator {
  Tensor tensor;
  bool written = false;

  // Returns the target of the next term, which the caller writes or adds itself, and marks the sum as
  // written.
  GradientTarget target();
  // Adds a term of the same shape, in any floating dtype.
  void add(Ops& ops, const Tensor& term, Stream& stream);
  // Returns the sum, to read or to add to. Fills it with zeros first if nothing was added.
  const Tensor& zero_if_unwritten(Ops& ops, Stream& stream);
};

inline std::shared_ptr<Accumulator> make_accumulator(Tensor tensor) {
  return std::make_shared<Accumulator>(Accumulator{std::move(tensor), false});
}

}  // namespace gangway
