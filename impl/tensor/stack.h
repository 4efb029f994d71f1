// A stack of temporaries: bump allocation with marks. Used for a context's temporaries and for a frame's saved
// activations. Addresses repeat from step to step as long as the sequence of sizes does; the high-water mark is exact,
// so a plan made on the meta device equals the run.
//
// Memory comes in chunks; when the stack is empty and has more than one chunk, they are given back, and the next
// allocation takes a single one of the high-water size, so that a steady state has one block. Only allocate() takes
// memory (or fails); giving back never throws, so that a scope may end while an exception passes.
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

  // Row-major, 64-byte aligned, contents undefined. The memory is valid until release() of an earlier mark or reset();
  // the tensor does not own it but pins its chunk.
  Tensor allocate(DType dtype, const Shape& shape);

  struct Mark {
    size_t chunk = 0, used = 0, total = 0;
  };
  Mark mark() const;
  void release(const Mark& mark) noexcept;
  // Whether `tensor`, which is not empty, is all that was allocated since `mark`.
  bool only(const Mark& mark, const Tensor& tensor) const;
  void reset() noexcept { release(Mark{}); }

  // What is used, in order of its chunks.
  struct Range {
    std::shared_ptr<Buffer> buffer;
    size_t bytes = 0;  // from the buffer's begin
  };
  std::vector<Range> used() const;

  size_t used_bytes() const { return total_; }       // now, after 64-byte padding
  size_t high_water_bytes() const { return high_; }  // most that was used at once
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

// Releases everything allocated since its construction.
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
