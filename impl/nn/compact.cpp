#include "nn/compact.h"

#include <algorithm>

namespace gangway {

Tensor compact(Stack& stack, const Stack::Mark& mark, const Tensor& tensor, Stream& stream) {
  const Tensor from = tensor;  // keeps its memory alive while the stack may free it
  stack.release(mark);
  if (!from) return {};
  GW_CHECK(from.contiguous(), ==, true);
  Tensor to = stack.allocate(from.dtype(), from.shape());
  const bool same = to.buffer() == from.buffer();
  if (from.bytes() == 0 || (same && to.byte_offset() == from.byte_offset())) return to;
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = static_cast<char*>(to.raw());
  if (source == nullptr || target == nullptr) return to;  // a meta device has no contents
  // Copies in pieces no longer than the distance between source and target: source and target of one piece
  // never overlap, and the target of a piece only covers source bytes that were copied already.
  size_t piece = from.bytes();
  if (same && from.byte_offset() > to.byte_offset())
    piece = std::min(piece, from.byte_offset() - to.byte_offset());
  for (size_t at = 0; at < from.bytes(); at += piece)
    stream.device().copy(target + at, source + at, std::min(piece, from.bytes() - at), stream);
  return to;
}

}  // namespace gangway
