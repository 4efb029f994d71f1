#include "nn/custom.h"

#include <algorithm>
#include <set>

#include "nn/gradient.h"

namespace gangway {
namespace {

// Wraps the user's state for a frame. The wrapper holds a reference to the behaviour, because the behaviour
// frees the state.
UserState owned(void* state, const std::shared_ptr<CustomBehaviour>& behaviour) {
  auto keep = std::make_unique<std::shared_ptr<CustomBehaviour>>(behaviour);
  const auto release = [](void* state, void* context) {
    const std::unique_ptr<std::shared_ptr<CustomBehaviour>> keep(
        static_cast<std::shared_ptr<CustomBehaviour>*>(context));
    (*keep)->free_state(state);
  };
  return {state, release, keep.release()};
}

// Frees the user's state when forward ends without passing it to a frame: no backward will come.
struct StateGuard {
  CustomBehaviour& behaviour;
  void*& state;
  ~StateGuard() {
    if (state != nullptr) behaviour.free_state(state);
  }
};

}  // namespace

Custom::Custom(const CustomOptions& options, std::shared_ptr<CustomBehaviour> behaviour)
    : name_(options.name),
      parallel_plan_(options.parallel_plan),
      parameter_groups_(options.parameter_groups),
      input_count_(options.input_count),
      output_count_(options.output_count),
      behaviour_(std::move(behaviour)) {
  if (input_count_ < 1 || output_count_ < 1)
    fail(Code::invalid_argument, "module ", name_, ": input_count is ", input_count_, ", output_count is ",
         output_count_, "; both are 1 or more");
  std::set<std::string> names;
  const auto check_name = [&](const char* what, const std::string& given) {
    if (given.empty()) fail(Code::invalid_argument, "module ", name_, ": the name of a ", what, " is empty");
    if (!names.insert(given).second)
      fail(Code::invalid_argument, "module ", name_, ": the name \"", given, "\" stands twice");
  };
  for (const CustomOptions::Parameter& p : options.parameters) {
    check_name("parameter", p.name);
    add_parameter(p.name, p.shape, p.init);
  }
  for (const Module::Child& child : options.children) {
    check_name("child", child.name);
    add_child(child.name, child.module);
  }
}

void Custom::add_options(CallSignature& signature) const {
  signature.add("input_count", input_count_);
  signature.add("output_count", output_count_);
  for (const std::string& pattern : parameter_groups_) signature.add("parameter group", pattern);
}

std::string Custom::label() const { return full_name().empty() ? name_ : name_ + " (" + full_name() + ")"; }

Specs Custom::check_forward(Context& ctx, std::span<const Spec> inputs) {
  if (inputs.size() != static_cast<size_t>(input_count_))
    fail(Code::invalid_argument, "module ", label(), ": takes ", input_count_, " inputs, got ",
         inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype == DType{})
      fail(Code::invalid_argument, "module ", label(), ": input ", i, " of ", input_count_, " is absent");
  const Specs outputs = behaviour_->shapes(*this, ctx, inputs);
  if (outputs.size() != static_cast<size_t>(output_count_))
    fail(Code::invalid_argument, "module ", label(), ": shapes gave ", outputs.size(), " outputs, ",
         output_count_, " were declared");
  return outputs;
}

void Custom::keep(std::span<const Tensor> tensors, int first_slot, Frame& frame) {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i]) frame.slots().save(*this, first_slot + static_cast<int>(i), tensors[i]);
}

Values Custom::kept(Context& ctx, int count, int first_slot, Frame& frame) {
  Values values;
  for (int i = 0; i < count; ++i)
    values.push_back(frame.slots().holds(*this, first_slot + i)
                         ? frame.slots().load(ctx, *this, first_slot + i)
                         : Tensor());
  return values;
}

void Custom::prepare_gradients(Context& ctx) {
  for (const ParameterPtr& p : parameters())
    if (wants_gradient(*p)) gradient_to_add(ctx, *p);
}

// A module without parameters of its own may still use its weight half (for its children); a module whose
// parameters are all frozen has none.
bool Custom::has_weight_task() const {
  if (!behaviour_->has_backward_weight()) return false;
  return parameters().empty() || std::any_of(parameters().begin(), parameters().end(),
                                             [](const ParameterPtr& p) { return wants_gradient(*p); });
}

Values Custom::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Specs made = check_forward(ctx, specs_of(inputs));
  for (const ParameterPtr& p : parameters()) value_of(*p);
  Values outputs;
  for (const Spec& spec : made) outputs.push_back(make_output(ctx, frame, spec.dtype, spec.shape));
  StackScope scope(ctx.temporaries);
  Context inner = ctx;
  inner.fused_loss = false;  // the user's forward may read the loss of a child, so forward has to make it
  Call call{.module = *this,
            .ctx = inner,
            .frame = frame,
            .inputs = inputs,
            .outputs = outputs,
            .output_grads = {},
            .input_grads = {},
            .parameters = parameters(),
            .state = nullptr};
  const StateGuard guard{*behaviour_, call.state};
  if (!on_meta(ctx)) behaviour_->forward(call);
  if (frame == nullptr) return outputs;
  keep(inputs, 0, *frame);
  keep(outputs, output_slot(), *frame);
  if (call.state != nullptr)
    frame->user_states().set(*this, owned(std::exchange(call.state, nullptr), behaviour_));
  return outputs;
}

Values Custom::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  const Values inputs = kept(ctx, input_count_, 0, frame);
  const Values outputs = kept(ctx, output_count_, output_slot(), frame);
  Values output_grads(dy.begin(), dy.end()), input_grads;
  output_grads.resize(static_cast<size_t>(output_count_));
  for (const Tensor& input : inputs)
    input_grads.push_back(is_floating(input.dtype()) ? frame.allocate_gradient(input.dtype(), input.shape())
                                                     : Tensor());
  StackScope scope(ctx.temporaries);
  if (!behaviour_->has_backward_weight()) prepare_gradients(ctx);
  Call call{.module = *this,
            .ctx = ctx,
            .frame = &frame,
            .inputs = inputs,
            .outputs = outputs,
            .output_grads = output_grads,
            .input_grads = input_grads,
            .parameters = parameters(),
            .state = frame.user_states().get(*this)};
  if (!on_meta(ctx)) behaviour_->backward_input(call);
  if (has_weight_task()) {
    keep(output_grads, gradient_slot(), frame);
    frame.push_weight(*this, 0, output_grads[0]);
  } else {
    frame.user_states().free(*this);
  }
  return input_grads;
}

void Custom::backward_weight(Context& ctx, Frame& frame, int, const Tensor&) {
  const Values inputs = kept(ctx, input_count_, 0, frame);
  const Values outputs = kept(ctx, output_count_, output_slot(), frame);
  const Values output_grads = kept(ctx, output_count_, gradient_slot(), frame);
  StackScope scope(ctx.temporaries);
  prepare_gradients(ctx);
  Call call{.module = *this,
            .ctx = ctx,
            .frame = &frame,
            .inputs = inputs,
            .outputs = outputs,
            .output_grads = output_grads,
            .input_grads = {},
            .parameters = parameters(),
            .state = frame.user_states().get(*this)};
  if (!on_meta(ctx)) behaviour_->backward_weight(call);
  frame.user_states().free(*this);
}

std::shared_ptr<Module> make_custom(const CustomOptions& options,
                                    std::shared_ptr<CustomBehaviour> behaviour) {
  return std::make_shared<Custom>(options, std::move(behaviour));
}

}  // namespace gangway
