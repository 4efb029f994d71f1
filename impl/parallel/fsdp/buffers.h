// Buffers that units of a model share in turn: rings of gathered values and of full gradients, and the line
// of gradient reductions in flight.
//
// A ring has a fixed number of buffers of the largest user's size; units that nest (the root) or stay
// unsharded have a buffer of their own. A buffer that somebody still holds (an export) when it is to be taken
// again is left to its holder and replaced.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "gang/gang.h"
#include "tensor/tensor.h"

namespace gangway {

class GroupValues;
class ShardedGradients;

// One place for the whole values of a unit.
struct AllGatherBuffer {
  std::shared_ptr<Allocator> from;
  size_t bytes = 0;
  std::shared_ptr<Buffer> buffer;
  GroupValues* user = nullptr;

  void allocate(std::shared_ptr<Allocator> allocator, size_t size);
  const std::shared_ptr<Buffer>& take(GroupValues& by);  // replaces a buffer that is still held elsewhere
};

class AllGatherBuffers {
 public:
  void need(size_t bytes);  // before allocate: a user of this size
  void allocate(const std::shared_ptr<Allocator>& from, int count);
  AllGatherBuffer* find_free();  // or null
  // A free slot, else one whose unit was gathered ahead and is not in use (dropped), else null.
  AllGatherBuffer* find(Stream& stream);
  size_t bytes() const { return bytes_ * slots_.size(); }

 private:
  size_t bytes_ = 0;
  std::vector<AllGatherBuffer> slots_;
};

// One place for the full gradients of a unit, with what their reduction needs.
struct GradientBuffer {
  std::shared_ptr<Allocator> full_from, output_from;
  size_t full_bytes = 0, reduce_bytes = 0, output_bytes = 0;
  std::shared_ptr<Buffer> full, reduce_buffer, reduce_output;
  ShardedGradients* user = nullptr;  // between acquire and the end of its reduction
  // The reduction in flight: over shards, then over replicas.
  WorkPtr first, second;
  bool in_flight = false;

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
  // The next slot that no unit holds; one whose reduction is in flight counts as free (the caller finishes
  // it).
  GradientBuffer& next();
  size_t bytes() const;

 private:
  size_t full_ = 0, reduce_ = 0, output_ = 0;
  std::vector<GradientBuffer> slots_;
  size_t next_ = 0;
};

// Reductions in flight, oldest first. The second half of each (over replicas) starts with the next push, after the first
// half: program order alone decides, so all ranks launch alike. Sums land in the local gradients in this order.
class PendingReductions {
 public:
  void push(GradientBuffer& slot, Stream& stream);
  // Later work of the stream comes after everything up to `slot`: sums landed, no peer reads the slot any more.
  void finish_through(GradientBuffer& slot, Stream& stream);
  void finish_all(Stream& stream);
  // Before all units go: what the reductions read and write stays until they are over on all ranks.
  void give_up() noexcept;

 private:
  void chain(Stream& stream);  // starts the second halves of all but the newest
  void accumulate(GradientBuffer& slot, Stream& stream);
  std::deque<GradientBuffer*> line_;
};

}  // namespace gangway
