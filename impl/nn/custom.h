// A module whose computation the user provides. This class allocates memory, saves tensors, orders the calls
// and frees the user's state; a CustomBehaviour implements the four phases (shapes, forward, backward_input,
// backward_weight).
//
// The frame keeps the inputs and outputs until backward. In backward an output holds what its readers left
// there: a layer may have written a residual sum over it. On the meta device only `shapes` is called, so that
// no phase sees absent data. Children, which only the user's phases call, take no memory there.
//
// The host calls a phase, but the phase puts its work on ctx.stream: inputs and parameter values are ready
// there in stream order, and later work of the stream reads what the phase writes. On a CPU, work on a stream
// runs at once. On a device whose memory the host cannot read (Tensor::on_host) a phase enqueues work and
// does not wait. free_state is called when the frame drops the state, which may be before the stream has run
// the work.
//
// Thread rule: one thread at a time; the thread that calls forward, backward or run_weight_gradients runs the
// phases.
#pragma once

#include "nn/layers.h"

namespace gangway {

class Custom final : public Module {
 public:
  Custom(const CustomOptions& options, std::shared_ptr<CustomBehaviour> behaviour);

  const char* kind() const override { return name_.c_str(); }
  void add_options(CallSignature& signature) const override;
  std::string parallel_plan() const override { return parallel_plan_; }
  const std::vector<std::string>& parameter_groups() const { return parameter_groups_; }
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

  std::string label() const;  // name in error messages
  void keep(std::span<const Tensor> tensors, int first_slot, Frame& frame);
  Values kept(Context& ctx, int count, int first_slot, Frame& frame);
  void prepare_gradients(Context& ctx);
  bool has_weight_task() const;

  // Slots of the frame, in this order: inputs, outputs, gradients of the outputs (for the weight half).
  int output_slot() const { return input_count_; }
  int gradient_slot() const { return input_count_ + output_count_; }

  std::string name_, parallel_plan_;
  std::vector<std::string> parameter_groups_;
  int input_count_, output_count_;
  std::shared_ptr<CustomBehaviour> behaviour_;
};

}  // namespace gangway
