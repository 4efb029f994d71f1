// What one forward leaves for its backward. The caller makes a frame and passes it to forward and later to
// backward. Many frames may be alive at once (the microbatches of a pipeline). A null frame saves nothing.
//
// Memory. A frame has two stacks: activations (everything that forward allocates) and gradients (everything
// that backward allocates, including the dy of pending weight tasks). Addresses repeat from step to step.
//
// Contents. Saved tensors lie in slots (saved_slots.h), the weight half of a backward waits as tasks
// (weight_tasks.h), and a module's activations may lie in a part with memory of its own (saved_parts.h).
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "nn/saved_parts.h"
#include "nn/saved_slots.h"
#include "nn/user_states.h"
#include "nn/weight_tasks.h"
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

class Frame {
 public:
  explicit Frame(std::shared_ptr<Allocator> memory)
      : activations_(memory), gradients_(memory), memory_(std::move(memory)), slots_(*this) {}
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  FrameId id;
  Recompute recompute = Recompute::none;

  SavedSlots& slots() { return slots_; }
  const SavedSlots& slots() const { return slots_; }
  SavedParts& parts() { return parts_; }
  UserStates& user_states() { return user_states_; }
  // The dtypes that a wrapper's forward got and that its inner module returned, for the wrapper's backward.
  // DType{}: the tensor is absent.
  struct Seen {
    std::vector<DType> inputs, outputs;
  };
  Seen& seen(const Module& owner) { return seen_[&owner]; }

  // --- memory ---
  // Allocates memory for activations. It is valid until reset().
  Tensor allocate(DType dtype, const Shape& shape) {
    return parts_.saving() != nullptr ? parts_.saving()->allocate(dtype, shape)
                                      : activations_.allocate(dtype, shape);
  }
  // Allocates memory for gradients and recomputed values. It is valid until compact() or reset().
  Tensor allocate_gradient(DType dtype, const Shape& shape) { return gradients_.allocate(dtype, shape); }
  Stack::Mark mark() const { return gradients_.mark(); }
  // dx += more, the sum of two gradients of one input. Releases the memory of `more` if `more` is the only
  // allocation since `before`.
  void add_gradient(Context& ctx, const Tensor& dx, const Tensor& more, const Stack::Mark& before);
  // A container calls this in backward between two children. It runs all weight tasks, releases the gradient
  // memory taken since `mark` except that of `dx`, resets the nested frames and returns `dx`, moved to the
  // released memory. With ctx.defer_weight it does nothing and returns `dx`.
  Tensor compact(Context& ctx, const Stack::Mark& mark, const Tensor& dx);

  // --- the weight half ---
  // Pushes a task (weight_tasks.h). It enters parts().backward() before it runs.
  void push_weight(Module& module, int index, const Tensor& dy) {
    weight_tasks_.push(module, index, dy, parts_.backward());
  }
  size_t pending_weight() const;  // number of tasks, those of nested frames included
  // Runs up to `most` tasks, the oldest first and those of nested frames last, and returns how many ran.
  size_t run_weight_gradients(Context& ctx, size_t most = SIZE_MAX);

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

 private:
  void reset_nested();

  Stack activations_;
  Stack gradients_;
  std::shared_ptr<Allocator> memory_;
  SavedSlots slots_;
  WeightTasks weight_tasks_;
  SavedParts parts_;
  std::map<const Module*, Seen> seen_;
  std::vector<std::unique_ptr<Frame>> nested_;
  size_t nested_used_ = 0;
  UserStates user_states_;  // destroyed first, so that a release function may still use what the frame holds
};

}  // namespace gangway
