// Memory for the activations that one module saves, used in place of the frame's own stack. Between forward
// and backward the contents may lie elsewhere (parallel/activation_offload moves them to the host).
//
// Thread rule: that of the frame; any thread may destroy it.
#pragma once

#include "tensor/tensor.h"

namespace gangway {

class SavedPart {
 public:
  virtual ~SavedPart() = default;
  virtual Tensor allocate(DType dtype, const Shape& shape) = 0;
  // Makes the contents available to later work of `stream` at the addresses that forward wrote. That work
  // only reads them.
  virtual void enter(Stream& stream) = 0;
};

}  // namespace gangway
