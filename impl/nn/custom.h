// The module whose compute is somebody else's: memory, saving, the order of the calls and the life of the
// user's state are ours, the four phases are a CustomBehaviour's.
//
// The inputs and outputs are kept in the frame until backward. In backward outputs are as their readers left
// them (a residual sum may have been written over one). On the meta device only `shapes` is called: no phase
// sees absent data, and children, whose calls are the user's, take no memory there.
//
// A phase runs on the host, but its work belongs on ctx.stream: there inputs and values are ready in order, and there what
// it writes must be. On a CPU that is at once. On a device whose memory the host does not reach (Tensor::on_host) a phase
// enqueues and does not wait; free_state comes when the frame lets go, which may be before the stream has run the work.
//
// Thread rule: one thread at a time; the phases are called on the thread of forward, backward or run_weight_gradients.
#pragma once

#include "nn/layers.h"

namespace gangway {

class Custom final : public Module {
 public:
  Custom(const CustomOptions& options, std::shared_ptr<CustomBehaviour> behaviour);

  const char* kind() const override { return name_.c_str(); }
  void add_options(Facts& facts) const override;
  std::string parallel_plan() const override { return parallel_plan_; }
  int input_count() const { return input_count_; }
  size_t output_count(size_t) const override { return static_cast<size_t>(output_count_); }
  size_t gradient_count() const override { return static_cast<size_t>(input_count_); }
  CustomBehaviour& behaviour() const { return *behaviour_; }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) override;

 private:
  using Call = CustomBehaviour::Call;

  std::string label() const;  // for messages
  void keep(std::span<const Tensor> tensors, int first_slot, Frame& frame);
  Values kept(Context& ctx, int count, int first_slot, Frame& frame);
  void prepare_gradients(Context& ctx);
  bool has_weight_task() const;

  // Slots: inputs, outputs, gradients of the outputs (for the weight half), in this order.
  int output_slot() const { return input_count_; }
  int gradient_slot() const { return input_count_ + output_count_; }

  std::string name_, parallel_plan_;
  int input_count_, output_count_;
  std::shared_ptr<CustomBehaviour> behaviour_;
};

}  // namespace gangway
