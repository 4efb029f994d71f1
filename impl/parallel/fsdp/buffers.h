// Buffers that groups of a model use in turn: rings of gathered values and of full gradients.
//
// A ring has a fixed number of buffers of the largest user's size; groups that nest (the root) or stay unsharded have a
// buffer of their own. A buffer that is still held elsewhere (an export) when it is taken again is left to its holder
// and replaced.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "gang/gang.h"
#include "tensor/tensor.h"

namespace gangway {

// A block of zeros: on a device by its own stream, on the host at once.
std::shared_ptr<Buffer> zeroed(const std::shared_ptr<Allocator>& from, size_t bytes);

// One place for the whole values of a group. The group that takes it gets a lease, and has the values for as long as
// that is the place's lease: while they are only gathered ahead another group may take the place.
struct AllGatherBuffer {
  enum class Use : uint8_t { free, ahead, in_use };
  std::shared_ptr<Allocator> from;
  size_t bytes = 0;
  std::shared_ptr<Buffer> buffer;
  Use use = Use::free;
  WorkPtr gathering;  // null: nothing comes in
  std::shared_ptr<Event>
      copied;  // of values that come from the host and are whole there; null: none on the way
  uint64_t lease = 0;

  void allocate(std::shared_ptr<Allocator> allocator, size_t size);
  uint64_t take();  // a new lease
};

class AllGatherBuffers {
 public:
  void need(size_t bytes);  // before allocate: a user of this size
  void allocate(const std::shared_ptr<Allocator>& from, int count);
  AllGatherBuffer* find_free();  // or null
  // A free place, else one that is only gathered ahead (its gathering may be under way), else null.
  AllGatherBuffer* find();
  size_t bytes() const { return bytes_ * slots_.size(); }

 private:
  AllGatherBuffer* find(AllGatherBuffer::Use use);

  size_t bytes_ = 0;
  std::vector<AllGatherBuffer> slots_;
};

// One place for the full gradients of a group, with what their reduction needs.
struct GradientBuffer {
  std::shared_ptr<Allocator> full_from, output_from;
  size_t full_bytes = 0, reduce_bytes = 0, output_bytes = 0;
  std::shared_ptr<Buffer> full, reduce_buffer, reduce_output;
  bool held = false;       // from acquire to the start of the reduction
  uint64_t reduction = 0;  // the last one, a ticket of PendingReductions

  void allocate();
  void refresh();  // replaces a full buffer that is still held elsewhere
  void release();  // gives the buffers back
  size_t bytes() const { return full_bytes + reduce_bytes + output_bytes; }
};

class GradientBuffers {
 public:
  void need(size_t full, size_t reduce, size_t output);
  void allocate(const std::shared_ptr<Allocator>& full_from, const std::shared_ptr<Allocator>& output_from,
                int count);
  // The next place that no group holds. Its reduction may be in flight: the caller ends it.
  GradientBuffer& next();
  size_t bytes() const;

 private:
  size_t full_ = 0, reduce_ = 0, output_ = 0;
  std::vector<GradientBuffer> slots_;
  size_t next_ = 0;
};

}  // namespace gangway
