// The wrapper that makes a module's parameters one unit: it unshards around forward and backward, casts what
// comes in and goes out, and reduces gradients when the unit's weight half has ended. Names do not change by
// it. The same wrapper serves FULL_SHARD, SHARD_GRAD_OP and NO_SHARD; what the steps mean is the unit's
// business.
//
// forward:  unshard (the next unit is gathered ahead), cast inputs, inner, reshard unless it is kept, cast
//           outputs
// backward: unshard (the one before is gathered ahead) if the inner module's backward reads its values, full gradients,
//           inner's input half, pending weight tasks, start the reduction, reshard
//
// A unit that was unsharded already when it is called (evaluation inside training) is left so. Those of a pipeline's stages
// are unsharded, resharded and reduced by its schedule (pipeline/runtime.h).
//
// Thread rule: that of its module.
#pragma once

#include <memory>

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

class FullyShardedModule final : public Module {
 public:
  FullyShardedModule(ModulePtr inner, std::shared_ptr<ParamGroup> unit, std::shared_ptr<FsdpState> domain);

  const char* kind() const override { return "FullyShard"; }
  bool is_wrapper() const override { return true; }
  void add_options(Facts& facts) const override { add_facts(unit_->options(), facts); }
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }
  const ParamGroup& unit() const { return *unit_; }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

 private:
  DType input_dtype(DType given) const;  // that it is cast to
  DType output_dtype(DType made) const;
  Values cast_inputs(Context& ctx, std::span<const Tensor> inputs, Frame* frame);
  Values cast_outputs(Context& ctx, Values outputs, Frame* frame);

  std::shared_ptr<FsdpState> domain_;  // before the unit, which looks at its buffers when it goes
  std::shared_ptr<ParamGroup> unit_;
  ParameterPtr product_;  // has the dtype that inputs are cast to, which a rule may have given it
};

}  // namespace gangway
