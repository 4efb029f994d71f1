#include "tensor/stack.h"

#include <algorithm>

namespace gangway {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kSmallestChunk = 1 << 20;

size_t padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Tensor Stack::allocate(DType dtype, const Shape& shape) {
  const size_t bytes = padded(static_cast<size_t>(shape.count()) * item_bytes(dtype));
  while (current_ < chunks_.size() && chunks_[current_].used + bytes > chunks_[current_].buffer->bytes())
    ++current_;
  if (current_ == chunks_.size()) {
    const size_t least = chunks_.empty() ? high_ : 2 * chunks_.back().buffer->bytes();
    chunks_.push_back({Buffer::allocate(from_, std::max({bytes, least, kSmallestChunk})), 0});
  }
  Chunk& chunk = chunks_[current_];
  const size_t offset = chunk.used;
  chunk.used += bytes;
  total_ += bytes;
  high_ = std::max(high_, total_);
  return Tensor(chunk.buffer, offset, dtype, shape);
}

Stack::Mark Stack::mark() const {
  return {current_, current_ < chunks_.size() ? chunks_[current_].used : 0, total_};
}

bool Stack::only(const Mark& mark, const Tensor& tensor) const {
  if (current_ >= chunks_.size() || tensor.buffer() != chunks_[current_].buffer) return false;
  return total_ - mark.total == padded(tensor.bytes()) &&
         chunks_[current_].used == tensor.byte_offset() + padded(tensor.bytes());
}

std::vector<Stack::Range> Stack::used() const {
  std::vector<Range> ranges;
  for (const Chunk& chunk : chunks_)
    if (chunk.used != 0) ranges.push_back({chunk.buffer, chunk.used});
  return ranges;
}

void Stack::release(const Mark& mark) noexcept {
  for (size_t i = mark.chunk; i < chunks_.size(); ++i) chunks_[i].used = i == mark.chunk ? mark.used : 0;
  current_ = mark.chunk;
  total_ = mark.total;
  // An empty stack frees its chunks, so that the next allocation takes a single large one.
  if (total_ == 0 && chunks_.size() > 1) {
    chunks_.clear();
    current_ = 0;
  }
}

}  // namespace gangway
