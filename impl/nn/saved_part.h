// Memory for what a part of a forward saves, in place of the frame's own stack. Its contents may be elsewhere between
// forward and backward (parallel/activation_offload).
//
// Thread rule: that of the frame; the end of a part comes on any thread.
#pragma once

#include "tensor/tensor.h"

namespace gangway {

class SavedPart {
 public:
  virtual ~SavedPart() = default;
  virtual Tensor allocate(DType dtype, const Shape& shape) = 0;
  // Later work of `stream` finds the contents where forward left them. It reads them only.
  virtual void enter(Stream& stream) = 0;
};

}  // namespace gangway
