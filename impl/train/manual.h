// Manual forward and backward, for a caller's own training loop. A frame holds what a forward saved until its
// backward.
//
// A caller may drop a forward without running its backward. reset() drops it, and so does destroying the
// frame. A frame may be destroyed at any time, on any thread, and at different times on different ranks,
// because a language's garbage collector may do it: this frees memory and runs no collective. Parameter
// groups that the forward kept unsharded stay unsharded until a backward ends or an update begins. All ranks
// refuse an update while a forward of any rank awaits its backward.
//
// Thread rule: one thread at a time, except for the destruction of a frame. manual_forward and
// manual_backward are collective; if one rank refuses its arguments, all ranks throw its error and the gangs
// stay usable. A failure while the model runs resets the frame and, with several ranks, breaks the gangs of
// the model.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "parallel/model/model.h"

namespace gangway {

struct ManualOptions {
  double loss_scale = 1;  // the gradient of the loss, from which backward starts
  int64_t step = 0;
  int microbatch = 0;
  // With context parallelism: inputs, outputs and their gradients are this rank's part of the sequences
  // (parallel/context/balance.h), and a loss is that of the part. False: they are whole and equal on the
  // ranks of cp; the forward cuts the inputs and puts outputs and gradients together.
  bool sequence_parts = false;
};

class ManualFrame {
 public:
  ManualFrame(std::shared_ptr<Model> model, const ManualOptions& options);

  const std::shared_ptr<Model>& model() const { return model_; }
  bool awaits_backward() const { return forward_ != nullptr; }
  void reset();  // drops what the last forward saved; the next forward may run

 private:
  friend Values manual_forward(Model&, std::span<const Tensor>, ManualFrame*, Stream&);
  friend Values manual_backward(ManualFrame&, std::span<const Tensor>, Stream&);
  Context context(Stream& stream) const;

  std::shared_ptr<Model> model_;
  ManualOptions options_;
  Frame frame_;
  int rows_ = 0;                         // of the last forward's inputs
  int64_t first_row_ = 0;                // their place in the global batch
  Specs outputs_;                        // of the last forward
  bool is_cut_ = false;                  // whether the last forward cut whole sequences
  std::vector<bool> parts_;              // which of its outputs are sequences, if so
  std::shared_ptr<const void> forward_;  // tells the model that a backward is awaited; null: none is
};

// Runs a forward; with a null frame, for evaluation. The outputs are copies, and the frame saves copies of
// the inputs. INVALID_ARGUMENT: the model does not accept the inputs. INVALID_STATE: the frame awaits a
// backward. NOT_SUPPORTED: over cp, an output is neither a part of the sequences nor a sum of one element.
// MISMATCH: some ranks give a frame and others none, or no_sync, sequence_parts or the number or dtypes of
// the inputs differ, or ranks of cp give different rows.
Values manual_forward(Model& model, std::span<const Tensor> inputs, ManualFrame* frame, Stream& stream);

// Runs the backward of the frame's forward and empties the frame. Takes the gradients of the outputs (none
// for a loss) and returns copies of the gradients of the inputs (absent: there is none). Adds to the local
// gradients, which the last backward reduces (ModelRunner::set_is_last_backward). INVALID_ARGUMENT: a
// gradient has a wrong shape or dtype, or there are more gradients than outputs. INVALID_STATE: the frame has
// had no forward. MISMATCH: ranks differ in no_sync.
Values manual_backward(ManualFrame& frame, std::span<const Tensor> dy, Stream& stream);

}  // namespace gangway
