// An input that is still on its way, in parts: the product that reads it first takes each part as it arrives, so that it
// computes with one while the next travels. Context::arriving has it; a wrapper around the module starts the parts.
//
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace gangway {

struct Context;

// Rows [first, last) of a tensor, flattened to [rows, width].
struct RowRange {
  int64_t first = 0, last = 0;
};

class ArrivingInput {
 public:
  virtual ~ArrivingInput() = default;
  // Whether parts of `x` are on their way. All of them are taken before anything else reads it.
  virtual bool holds(const Tensor& x) const = 0;
  // Rows of the next part, which are there for what follows on ctx.stream. None: all parts have arrived.
  virtual std::vector<RowRange> next(Context& ctx) = 0;
};

}  // namespace gangway
