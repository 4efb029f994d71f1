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

class UnitValues;
class ShardGradients;

// One place for the whole values of a unit.
struct ValueSlot {
  std::shared_ptr<Allocator> from;
  size_t bytes = 0;
  std::shared_ptr<Buffer> buffer;
  UnitValues* user = nullptr;

  void allocate(std::shared_ptr<Allocator> allocator, size_t size);
  const std::shared_ptr<Buffer>& take(UnitValues& by);  // replaces a buffer that is still held elsewhere
};

class ValueRing {
 public:
  void need(size_t bytes);  // before allocate: a user of this size
  void allocate(const std::shared_ptr<Allocator>& from, int count);
  ValueSlot* find_free();  // or null
  // A free slot, else one whose unit was gathered ahead and is not in use (dropped), else null.
  ValueSlot* find(Stream& stream);
  size_t bytes() const { return bytes_ * slots_.size(); }

 private:
  size_t bytes_ = 0;
  std::vector<ValueSlot> slots_;
};

// One place for the full gradients of a unit, with what their reduction needs.
struct GradientSlot {
  std::shared_ptr<Allocator> full_from, landing_from;
  size_t full_bytes = 0, wire_bytes = 0, landing_bytes = 0;
  std::shared_ptr<Buffer> full, wire, landing;
  ShardGradients* user = nullptr;  // between acquire and the end of its reduction
  // The reduction in flight: over shards, then over replicas.
  WorkPtr first, second;
  bool in_flight = false;

  void allocate();
  void refresh();  // replaces a full buffer that is still held elsewhere
  void release();  // gives the buffers back
  size_t bytes() const { return full_bytes + wire_bytes + landing_bytes; }
};

class GradientRing {
 public:
  void need(size_t full, size_t wire, size_t landing);
  void allocate(const std::shared_ptr<Allocator>& full_from, const std::shared_ptr<Allocator>& landing_from,
                int count);
  // The next slot that no unit holds; one whose reduction is in flight counts as free (the caller settles
  // it).
  GradientSlot& next();
  size_t bytes() const;

 private:
  size_t full_ = 0, wire_ = 0, landing_ = 0;
  std::vector<GradientSlot> slots_;
  size_t next_ = 0;
};

// Reductions in flight, oldest first. Their second halves (over replicas) start in this order on every rank,
// and sums land in the local gradients in it.
class ReductionLine {
 public:
  void push(GradientSlot& slot, Stream& stream);
  // Starts second halves whose first half is done; never waits for peers.
  void advance(Stream& stream);
  // Later work of the stream comes after everything up to `slot`: sums landed, no peer reads the slot any more.
  void settle(GradientSlot& slot, Stream& stream);
  void settle_all(Stream& stream);
  // Before all units go: what the reductions read and write stays until they are over on all ranks.
  void give_up() noexcept;

 private:
  void land(GradientSlot& slot, Stream& stream);
  std::deque<GradientSlot*> line_;
};

}  // namespace gangway
