// An input that other ranks are still sending, in parts. The layer that reads it first takes each part as it
// arrives, so that it computes with one part while the next one travels. A wrapper around the module starts
// the transfers and passes the input in Context::arriving.
//
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace gangway {

struct Context;

// Rows [first, last) of a tensor that is flattened to [rows, width].
struct RowRange {
  int64_t first = 0, last = 0;
};

class ArrivingInput {
 public:
  virtual ~ArrivingInput() = default;
  // Returns whether `x` is this input. The caller then takes all parts before anything else reads `x`.
  virtual bool holds(const Tensor& x) const = 0;
  // Returns the rows of the next part; work that the caller puts on ctx.stream afterwards may read them.
  // Returns no rows once all parts have arrived.
  virtual std::vector<RowRange> next(Context& ctx) = 0;
};

}  // namespace gangway
