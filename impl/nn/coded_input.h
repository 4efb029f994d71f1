// An input that linear layers in FP8 get as codes in place of values. A wrapper around all layers that read
// it makes the codes, once for all of them, because codes are what it moves between ranks
// (parallel/tensor/coded_gather.h). The layers get the tensor of the codes as their input, and find what
// belongs to it in Context::arriving.
//
// Thread rule: one thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "nn/linear.h"

namespace gangway {

class CodedInput : public ArrivingInput {
 public:
  // Returns what belongs to the codes `x`. Null: `x` has values.
  static CodedInput* of(const Context& ctx, const Tensor& x);

  // [T, I] with its scales, for y = x w^T.
  const Fp8Products::Operand& operand() const { return operand_; }
  // What a frame keeps for dw = dy^T x: the transposed codes [I, T] with their scales, absent without a
  // frame. Backward makes their contents when they are loaded (SavedSlots::recomputable). A scale of the
  // whole input is that of operand() and has its contents.
  const Fp8Products::Operand& transposed() const { return transposed_; }

 protected:
  CodedInput(Fp8Products::Operand operand, Fp8Products::Operand transposed)
      : operand_(std::move(operand)), transposed_(std::move(transposed)) {}
  bool is(const Tensor& x) const;

 private:
  const Fp8Products::Operand operand_, transposed_;
};

// Returns the layers that read the first input of `module`, if nothing reads it but linear layers that make
// the same codes of it: in FP8, with one way to scale, and without an adapter, which multiplies values. Else
// none. A wrapper in front of a layer may read values, too.
std::vector<Linear*> layers_that_share_codes(Module& module);

}  // namespace gangway
