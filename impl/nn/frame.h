// The activations that one forward saves for its backward. They lie in slots, which backward may read in any
// order. The caller makes a frame and passes it to forward and later to backward. Many frames may be alive at
// once (the microbatches of a pipeline). A null frame saves nothing.
//
// Memory. A frame has two stacks: activations (everything that forward allocates) and gradients (everything
// that backward allocates, including the dy of pending weight tasks). Addresses repeat from step to step.
//
// Saving. save(owner, slot, tensor) keeps a reference: the tensor must lie in the frame or outlive it. A
// tensor that recomputable() announced is not kept. Its producer recomputes it in its own backward, in a pass
// that reads the inputs anyway (needs_recompute(), set_recomputed()). A load() before that makes the producer
// recompute it into the gradient stack. Either way the tensor is recomputed once in a backward, unless
// compact() has released that memory.
//
// Weight half. Backward of a module returns input gradients and pushes its weight-gradient work as tasks,
// which run_weight_gradients() runs. The input half needs the weights; the weight half needs only x and dy.
//
// Parts. A wrapper may give the activations of a module memory of its own (saved_part.h). A weight task of
// such a module enters the module's part before it runs.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "nn/saved_part.h"
#include "tensor/stack.h"

namespace gangway {

class Module;
struct Context;

struct FrameId {
  int64_t step = 0;
  int microbatch = 0;
  int stage = 0;
};

// Which outputs a forward does not keep. (Rotary works in place and saves nothing.)
enum class Recompute : uint8_t {
  none,  // outputs of SwiGLU and of a block's norms: backward recomputes them in its own pass, at no cost
  selective,  // also outputs of other norms, and values that a Boundaries wrapper gathered
};

// When an announced tensor is recomputed. Both are before the weight half.
enum class RecomputeWhen : uint8_t { in_backward /* of its producer */, when_loaded };

class Frame {
 public:
  explicit Frame(std::shared_ptr<Allocator> memory)
      : activations_(memory), gradients_(memory), memory_(memory) {}
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  FrameId id;
  Recompute recompute = Recompute::none;

  // --- forward ---
  Tensor allocate(DType dtype, const Shape& shape) {
    return saving_ != nullptr ? saving_->allocate(dtype, shape) : activations_.allocate(dtype, shape);
  }
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
  // Allocates memory for gradients and recomputed values. It is valid until compact() or reset().
  Tensor allocate_gradient(DType dtype, const Shape& shape) { return gradients_.allocate(dtype, shape); }

  // dx += more, the sum of two gradients of one input. Releases the memory of `more` if `more` is the only
  // allocation since `before`.
  void add_gradient(Context& ctx, const Tensor& dx, const Tensor& more, const Stack::Mark& before);

  struct WeightTask {
    Module* module;
    int index;        // the module's own number of the task
    Tensor dy;        // in the gradient stack, or in the memory of a saved activation
    SavedPart* part;  // of the module, or null
  };
  void push_weight(Module& module, int index, const Tensor& dy) {
    pending_weight_.push_back({&module, index, dy, backward_part_});
  }
  size_t pending_weight() const;  // number of tasks, those of nested frames included
  // Runs up to `most` tasks, the oldest first, and returns how many ran.
  size_t run_weight_gradients(Context& ctx, size_t most = SIZE_MAX);
  // A container calls this in backward between two children. It runs all weight tasks, releases the gradient
  // memory taken since `mark` except that of `dx`, resets the nested frames and returns `dx`, moved to the
  // released memory. With ctx.defer_weight it does nothing and returns `dx`.
  Stack::Mark mark() const { return gradients_.mark(); }
  Tensor compact(Context& ctx, const Stack::Mark& mark, const Tensor& dx);

  // The dtypes that a wrapper's forward got and that its inner module returned, for the wrapper's backward.
  // DType{}: the tensor is absent.
  struct Seen {
    std::vector<DType> inputs, outputs;
  };
  Seen& seen(const Module& owner) { return seen_[&owner]; }

  // The state of a custom module. It is freed once: after the module's last backward half, or by reset().
  struct UserState {
    void* state = nullptr;
    void (*release)(void* state, void* context) = nullptr;
    void* context = nullptr;
  };
  void set_user_state(const Module& owner, UserState state);
  void* user_state(const Module& owner) const;  // null: none
  void free_user_state(const Module& owner);

  // The part of `owner` exists from its forward until drop_part() or reset(). Between set_saving(part) and
  // set_saving(nullptr), allocate() takes memory from the part. set_backward_part sets the part whose
  // contents the weight tasks pushed after it need.
  void add_part(const Module& owner, std::shared_ptr<SavedPart> part) {
    parts_.emplace_back(&owner, std::move(part));
  }
  std::shared_ptr<SavedPart> part_of(const Module& owner) const;  // null: none
  std::shared_ptr<SavedPart> last_part() const { return parts_.empty() ? nullptr : parts_.back().second; }
  void drop_part(const Module& owner);
  void set_saving(SavedPart* part) { saving_ = part; }
  bool is_saving_part() const { return saving_ != nullptr; }
  void set_backward_part(SavedPart* part) { backward_part_ = part; }

  // Returns a frame for recomputation inside this frame's backward. This frame runs its weight tasks, frees
  // it, and reuses it after its own compact(). A result in the nested frame must be copied to this frame's
  // gradient stack, or be the `dx` of compact(), before that.
  Frame& nest();

  // Drops all contents. The memory is kept for the next step.
  void reset();

  // The most bytes in use at once so far, with those of nested frames. saved_bytes: this frame's activations
  // now. The memory of parts is not counted.
  size_t activation_bytes() const;
  size_t gradient_bytes() const;
  size_t saved_bytes() const { return activations_.used_bytes(); }
  const std::shared_ptr<Allocator>& memory() const { return memory_; }

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
  void reset_nested();

  Stack activations_;
  Stack gradients_;
  std::shared_ptr<Allocator> memory_;
  std::map<Key, Slot> slots_;
  std::vector<Producer> producers_;
  std::map<Address, int> producer_of_;  // from the address of an announced tensor, during forward
  std::deque<WeightTask> pending_weight_;
  std::map<const Module*, Seen> seen_;
  std::map<const Module*, UserState> user_states_;
  std::vector<std::pair<const Module*, std::shared_ptr<SavedPart>>> parts_;  // in the order of forward
  SavedPart* saving_ = nullptr;
  SavedPart* backward_part_ = nullptr;
  std::vector<std::unique_ptr<Frame>> nested_;
  size_t nested_used_ = 0;
};

}  // namespace gangway
