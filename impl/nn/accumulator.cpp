#include "nn/accumulator.h"

#include <utility>

namespace gangway {

GradientTarget Accumulator::target() { return {tensor, std::exchange(written, true)}; }

void Accumulator::add(Ops& ops, const Tensor& term, Stream& stream) {
  const bool first = !std::exchange(written, true);
  if (tensor.count() == 0) return;
  if (first)
    ops.cast(term, tensor, stream);
  else
    ops.add(term, 1, tensor, stream);
}

const Tensor& Accumulator::zero_if_unwritten(Ops& ops, Stream& stream) {
  if (!std::exchange(written, true) && tensor.count() != 0) ops.fill(tensor, 0, stream);
  return tensor;
}

}  // namespace gangway
