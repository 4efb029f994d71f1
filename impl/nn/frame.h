// The activations that one forward saves for its backward: slots, not a stack. The caller makes a frame, passes it to
// forward and later to backward; many may be alive (microbatches of a pipeline). A null frame means: nothing is saved.
//
// Memory. Two stacks: activations (everything allocated in forward) and gradients (everything allocated in backward,
// the dy of pending weight tasks among it). Addresses repeat from step to step.
//
// Saving. save(owner, slot, tensor) keeps a reference: the tensor must lie in the frame or outlive it. A tensor
// that was announced by recomputable() is not kept. Its producer makes it again in its own backward, in a pass that
// has the values at hand (needs_recompute(), set_recomputed()); a load before that runs the producer once more, into the
// gradient stack. Either way once in a backward, unless compact() gave that memory back.
//
// Weight half. Backward of a module gives input gradients and pushes its weight-gradient work into pending_weight;
// run_weight_gradients() runs it. The input half needs weights, the weight half needs x and dy only.
//
// Parts. A wrapper may give the activations of a module memory of its own (saved_part.h). Weight tasks of such a module
// enter its part before they run.
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

// What a forward does not keep (rotary works in place and keeps nothing of its own).
enum class Recompute : uint8_t {
  none,  // outputs of SwiGLU and of a block's norms: backward makes them again in its own pass, at no cost
  selective,  // outputs of other norms and what boundaries gathered, too
};

// When an announced tensor is made again, at the latest before the weight half.
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
  // INVALID_STATE when the slot is taken: the module ran twice in one frame.
  void save(const Module& owner, int slot, const Tensor& tensor);
  // `tensor` (in the context's temporaries) can be made again by producer.recompute(ctx, frame, index).
  void recomputable(const Tensor& tensor, Module& producer, int index, RecomputeWhen when);
  // `tensor`, or a copy in the frame of one that was announced: for an output that leaves the place where what
  // its producer needs is at hand.
  Tensor kept(Context& ctx, const Tensor& tensor);

  // --- backward ---
  // The saved tensor; runs its producer if it was not kept. INVALID_STATE when the slot is empty.
  Tensor load(Context& ctx, const Module& owner, int slot);
  bool holds(const Module& owner, int slot) const { return slots_.contains({&owner, slot}); }
  // Whether a slot refers to memory of `tensor`.
  bool keeps(const Tensor& tensor) const;
  // For an input half whose weight half will load: making a tensor again may need weights, which the weight half
  // does not have, so it is made now, but for one that its producer's backward, still to come, makes anyhow.
  void prepare(Context& ctx, const Module& owner, int slot);
  // For a producer's backward: output `index` was saved by somebody and is not there yet.
  bool needs_recompute(const Module& producer, int index) const;
  // It is now, in `tensor`, which lies in the gradient stack.
  void set_recomputed(const Module& producer, int index, const Tensor& tensor);
  // Memory for gradients and recomputed values: lives until compact() or reset().
  Tensor allocate_gradient(DType dtype, const Shape& shape) { return gradients_.allocate(dtype, shape); }

  // dx += more: two gradients of one input. `more`, made since `before`, gives its memory back, unless more was
  // taken after it.
  void add_gradient(Context& ctx, const Tensor& dx, const Tensor& more, const Stack::Mark& before);

  struct WeightTask {
    Module* module;
    int index;        // the module's own number of the task
    Tensor dy;        // lies in the gradient stack, or over what was saved
    SavedPart* part;  // of the module; null: there is none
  };
  void push_weight(Module& module, int index, const Tensor& dy) {
    pending_weight_.push_back({&module, index, dy, backward_part_});
  }
  size_t pending_weight() const;  // tasks, those of nested frames included
  // Runs the oldest `most` tasks (all by default); returns how many ran.
  size_t run_weight_gradients(Context& ctx, size_t most = SIZE_MAX);
  // Where a container is between two children: with ctx.defer_weight false, drains, then gives back all gradient memory
  // taken since `mark` but `dx`, which is moved down and returned, and resets the nested frames. Deferred: returns dx
  // as it is.
  Stack::Mark mark() const { return gradients_.mark(); }
  Tensor compact(Context& ctx, const Stack::Mark& mark, const Tensor& dx);

  // What a wrapper saw in forward and its backward goes by: the dtypes of what came in and of what its inner module
  // gave (none: absent).
  struct Seen {
    std::vector<DType> inputs, outputs;
  };
  Seen& seen(const Module& owner) { return seen_[&owner]; }

  // One slot for a custom module's own state, freed once: after its last backward half, or by reset().
  struct UserState {
    void* state = nullptr;
    void (*release)(void* state, void* context) = nullptr;
    void* context = nullptr;
  };
  void set_user_state(const Module& owner, UserState state);
  void* user_state(const Module& owner) const;  // null: none
  void free_user_state(const Module& owner);

  // The part of `owner`, from its forward until drop_part or reset. Between set_saving(part) and set_saving(null)
  // allocate() takes memory from it; set_backward_part says whose contents weight tasks need that are pushed from now on.
  void add_part(const Module& owner, std::shared_ptr<SavedPart> part) {
    parts_.emplace_back(&owner, std::move(part));
  }
  std::shared_ptr<SavedPart> part_of(const Module& owner) const;  // null: none
  std::shared_ptr<SavedPart> last_part() const { return parts_.empty() ? nullptr : parts_.back().second; }
  void drop_part(const Module& owner);
  void set_saving(SavedPart* part) { saving_ = part; }
  bool is_saving_part() const { return saving_ != nullptr; }
  void set_backward_part(SavedPart* part) { backward_part_ = part; }

  // A frame for recomputation inside this one's backward; drained and freed with it, free for reuse after compact() of
  // this one. A result that lies in the nested frame goes into this one's gradient stack (or through compact) first.
  Frame& nest();

  // Forgets everything; memory is kept for the next step.
  void reset();

  // Most that was held at once, with what nested frames held; saved_bytes: now, of this one. Without parts.
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
    std::weak_ptr<Buffer>
        place;           // the temporaries that hold the announced tensor; tells a reused address apart
    Tensor again;        // made again in this backward
    size_t made_at = 0;  // gradient bytes in use when `again` was made
  };
  struct Slot {
    Tensor tensor;      // kept, or absent
    Shape shape;        // of the saved tensor
    int producer = -1;  // index into producers_, or kept
  };
  using Key = std::pair<const Module*, int>;
  using Address = std::pair<const Buffer*, size_t>;  // byte offset in the buffer; holds on meta, too

  int find_producer(const Tensor& tensor) const;  // -1: none
  int find_producer(const Module& producer, int index) const;
  const Slot& filled(const Module& owner, int slot) const;
  void reset_nested();

  Stack activations_;
  Stack gradients_;
  std::shared_ptr<Allocator> memory_;
  std::map<Key, Slot> slots_;
  std::vector<Producer> producers_;
  std::map<Address, int> producer_of_;  // place in the temporaries -> producer, during forward
  std::deque<WeightTask> pending_weight_;
  std::map<const Module*, Seen> seen_;
  std::map<const Module*, UserState> user_states_;
  std::vector<std::pair<const Module*, std::shared_ptr<SavedPart>>> parts_;  // in order of the forward
  SavedPart* saving_ = nullptr;
  SavedPart* backward_part_ = nullptr;
  std::vector<std::unique_ptr<Frame>> nested_;
  size_t nested_used_ = 0;
};

}  // namespace gangway
