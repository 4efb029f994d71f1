// The tensors that modules save in a frame for their backward. Each lies in a slot of its module. Backward
// may read the slots in any order.
//
// save(owner, slot, tensor) keeps a reference: the tensor must lie in the frame or outlive it. A tensor that
// recomputable() announced is not kept. Its producer recomputes it in its own backward, in a pass that reads
// the inputs anyway (needs_recompute(), set_recomputed()). A load() before that makes the producer recompute
// it into the gradient stack. Either way the tensor is recomputed once in a backward, unless Frame::compact()
// has released that memory.
//
// Thread rule: that of the frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/stack.h"

namespace gangway {

class Frame;
class Module;
struct Context;

// When an announced tensor is recomputed. Both are before the weight half.
enum class RecomputeWhen : uint8_t { in_backward /* of its producer */, when_loaded };

class SavedSlots {
 public:
  explicit SavedSlots(Frame& frame) : frame_(frame) {}  // `frame` holds this object
  SavedSlots(const SavedSlots&) = delete;
  SavedSlots& operator=(const SavedSlots&) = delete;

  // --- forward ---
  // INVALID_STATE: the slot is taken, because the module ran twice in one frame.
  void save(const Module& owner, int slot, const Tensor& tensor);
  // Announces that producer.recompute(ctx, frame, index) can recompute `tensor`, which lies in the context's
  // temporaries.
  void recomputable(const Tensor& tensor, Module& producer, int index, RecomputeWhen when);
  // Returns `tensor`; if it was announced, returns a copy of it in the frame. For an output that must not be
  // recomputed later, for example because its producer's weights may be resharded by then.
  Tensor kept(Context& ctx, const Tensor& tensor);

  // --- backward ---
  // Returns the saved tensor; a tensor that was not kept is recomputed. INVALID_STATE: the slot is empty.
  Tensor load(Context& ctx, const Module& owner, int slot);
  bool holds(const Module& owner, int slot) const { return slots_.contains({&owner, slot}); }
  // Returns whether a saved tensor overlaps the memory of `tensor`.
  bool keeps(const Tensor& tensor) const;
  // An input half calls this for a slot that its weight half will load. Recomputing a tensor may need
  // weights, which the weight half does not have, so the tensor is recomputed now. A tensor whose producer's
  // backward is still to come and recomputes it anyway is left to that.
  void prepare(Context& ctx, const Module& owner, int slot);
  // Tells a producer's backward whether a module saved its output `index` and nothing has recomputed it yet.
  bool needs_recompute(const Module& producer, int index) const;
  // Records that `tensor`, which lies in the gradient stack, is the recomputed output `index`.
  void set_recomputed(const Module& producer, int index, const Tensor& tensor);

  // --- for the frame ---
  // Drops the recomputed tensors that lie above `mark` of the gradient stack; a later load() recomputes them.
  void drop_recomputed(const Stack::Mark& mark);
  void clear();

 private:
  struct Producer {
    Module* module = nullptr;
    int index = 0;
    RecomputeWhen when = RecomputeWhen::when_loaded;
    bool saved = false;
    std::weak_ptr<Buffer> place;  // the buffer of the announced tensor; detects that its address was reused
    Tensor again;                 // the tensor as recomputed in this backward, or absent
    size_t made_at = 0;           // gradient bytes in use when `again` was recomputed
  };
  struct Slot {
    Tensor tensor;      // the saved tensor; absent if a producer recomputes it
    Shape shape;        // of the saved tensor
    int producer = -1;  // index into producers_; -1: `tensor` is kept
  };
  using Key = std::pair<const Module*, int>;
  // A buffer and a byte offset in it. Unlike a pointer, this also identifies a tensor on a meta device.
  using Address = std::pair<const Buffer*, size_t>;

  // Return the index of a producer, or -1.
  int find_producer(const Tensor& tensor) const;
  int find_producer(const Module& producer, int index) const;
  const Slot& filled(const Module& owner, int slot) const;

  Frame& frame_;
  std::map<Key, Slot> slots_;
  std::vector<Producer> producers_;
  std::map<Address, int> producer_of_;  // from the address of an announced tensor, during forward
};

}  // namespace gangway
