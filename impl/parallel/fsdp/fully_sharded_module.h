// The wrapper that makes the parameters of a module one parameter group. It unshards them around forward and
// backward, casts inputs and outputs, and starts the reduction of gradients when the weight half of the
// backward has ended. It does not change names. The same wrapper serves FULL_SHARD, SHARD_GRAD_OP and
// NO_SHARD; the parameter group implements the differences.
//
// forward:  unshard and prefetch the next parameter group; cast the inputs; run the inner module; reshard,
//           unless the values are kept; cast the outputs.
// backward: unshard, if the inner backward reads the values, and prefetch the previous parameter group;
//           acquire full gradients; run the inner input half and the pending weight tasks; start the
//           reduction; reshard.
//
// A parameter group that was unsharded before forward (an evaluation inside training) stays unsharded. The
// parameter groups of pipeline stages are unsharded, resharded and reduced by the schedule
// (pipeline/runtime.h).
//
// Thread rule: that of the inner module.
#pragma once

#include <memory>

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

class FullyShardedModule final : public Module {
 public:
  FullyShardedModule(ModulePtr inner, std::shared_ptr<ParameterGroup> group,
                     std::shared_ptr<FsdpState> state);

  const char* kind() const override { return "FullyShard"; }
  bool is_wrapper() const override { return true; }
  void add_options(CallSignature& signature) const override {
    add_to_signature(group_->options(), signature);
  }
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }
  const ParameterGroup& group() const { return *group_; }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

 private:
  DType input_dtype(DType given) const;  // the dtype to which an input is cast
  DType output_dtype(DType made) const;
  Values cast_inputs(Context& ctx, std::span<const Tensor> inputs, Frame* frame);
  Values cast_outputs(Context& ctx, Values outputs, Frame* frame);

  // Declared before `group_`, whose destructor uses buffers of the state.
  std::shared_ptr<FsdpState> state_;
  std::shared_ptr<ParameterGroup> group_;
  ParameterPtr product_;  // its compute dtype, which a dtype rule may set, is that of the inputs
};

}  // namespace gangway
