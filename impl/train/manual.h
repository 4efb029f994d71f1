// Forward and backward by a caller's own loop. A frame keeps what a forward saved until its backward.
//
// A forward without its backward needs nothing. reset() gives it up, and so does the frame's end, which may come at any
// moment, on any thread and on each rank at another time (collectors release frames): it frees memory and changes
// nothing that ranks do together. Units that the forward kept unsharded stay so until a backward ends or an update
// begins. An update is refused on all ranks while a rank's forward awaits its backward.
//
// Thread rule: one thread at a time, but for the end of a frame. The two calls are collective, and their refusals
// agreed. What fails while the model runs breaks the gangs of a model of several ranks and gives the forward up.
#pragma once

#include <memory>
#include <span>

#include "parallel/model/model.h"

namespace gangway {

struct ManualOptions {
  double loss_scale = 1;  // what the backward of a loss starts with
  int64_t step = 0;
  int microbatch = 0;
};

class ManualFrame {
 public:
  ManualFrame(std::shared_ptr<Model> model, const ManualOptions& options);

  const std::shared_ptr<Model>& model() const { return model_; }
  bool awaits_backward() const { return forward_ != nullptr; }
  void reset();  // ready for the next forward

 private:
  friend Values manual_forward(Model&, std::span<const Tensor>, ManualFrame*, Stream&);
  friend Values manual_backward(ManualFrame&, std::span<const Tensor>, Stream&);
  Context context(Stream& stream) const;

  std::shared_ptr<Model> model_;
  ManualOptions options_;
  Frame frame_;
  Specs outputs_;                        // of the forward
  std::shared_ptr<const void> forward_;  // that awaits its backward; null: none
};

// Null frame: evaluation. The outputs are copies, and so is what the frame saves of the inputs. INVALID_ARGUMENT: what
// the model refuses of them. INVALID_STATE: the frame awaits its backward. MISMATCH: ranks differ in giving a frame, in
// no_sync, or in number or dtypes of inputs.
Values manual_forward(Model& model, std::span<const Tensor> inputs, ManualFrame* frame, Stream& stream);

// Gradients of the outputs in (none for a loss), copies of those of the inputs out (absent: none). Adds to the local
// gradients, reduced after the last backward (ModelRunner::set_is_last_backward); the frame is empty then. INVALID_ARGUMENT: a
// gradient's shape or dtype, more of them than outputs. INVALID_STATE: the frame has had no forward. MISMATCH: ranks
// differ in no_sync.
Values manual_backward(ManualFrame& frame, std::span<const Tensor> dy, Stream& stream);

}  // namespace gangway
