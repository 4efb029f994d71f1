// A stack of temporary tensors: bump allocation with marks. A context uses it for temporaries, and a frame
// for saved activations. Addresses repeat from step to step if the sequence of sizes does. The high-water
// mark is exact, so a plan made on the meta device equals the run.
//
// Memory comes in chunks. When the stack is empty and has more than one chunk, it frees them, and the next
// allocation takes a single chunk of the high-water size: a steady state has one block. Only allocate() takes
// memory and can fail. Releasing never throws, so that a scope may end while an exception propagates.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace gangway {

class Stack {
 public:
  explicit Stack(std::shared_ptr<Allocator> from) : from_(std::move(from)) {}

  // Allocates a row-major tensor, aligned to 64 bytes, with undefined contents. The memory is valid until
  // release() of an earlier mark or reset(). The tensor keeps its chunk alive, but does not keep the stack
  // from using the memory again.
  Tensor allocate(DType dtype, const Shape& shape);

  struct Mark {
    size_t chunk = 0, used = 0, total = 0;
  };
  Mark mark() const;
  void release(const Mark& mark) noexcept;
  // Returns whether `tensor`, which must not be empty, is the only allocation since `mark`.
  bool only(const Mark& mark, const Tensor& tensor) const;
  void reset() noexcept { release(Mark{}); }

  // Returns the used ranges, in the order of their chunks.
  struct Range {
    std::shared_ptr<Buffer> buffer;
    size_t bytes = 0;  // from the buffer's beginning
  };
  std::vector<Range> used() const;

  size_t used_bytes() const { return total_; }       // now, with padding to 64 bytes
  size_t high_water_bytes() const { return high_; }  // the largest used_bytes() so far
  Device& device() const { return from_->device(); }

 private:
  struct Chunk {
    std::shared_ptr<Buffer> buffer;
    size_t used = 0;
  };
  std::shared_ptr<Allocator> from_;
  std::vector<Chunk> chunks_;
  size_t current_ = 0;
  size_t total_ = 0;
  size_t high_ = 0;
};

// Releases, at the end of a scope, everything that was allocated since the scope began.
class StackScope {
 public:
  explicit StackScope(Stack& stack) : stack_(stack), mark_(stack.mark()) {}
  ~StackScope() { stack_.release(mark_); }
  StackScope(const StackScope&) = delete;
  StackScope& operator=(const StackScope&) = delete;

 private:
  Stack& stack_;
  Stack::Mark mark_;
};

}  // namespace gangway
