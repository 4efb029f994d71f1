// Optimizers and schedules whose steps are the caller's functions.
#include <gangway/custom_optimizer.h>

#include <deque>

#include "callbacks.h"
#include "optim/custom.h"
#include "optimizer_options.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

class Stepper final : public CustomStepper {
 public:
  Stepper(std::string name, gw_optimizer_step_fn step, CallerObject user)
      : name_(std::move(name)), step_(step), user_(std::move(user)) {}

  void step(const CustomStep& step, Stream& stream) override {
    std::deque<gw_parameter::Dims> dims;  // views hold the addresses of its elements
    const auto view = [&](const Tensor& tensor) {
      gw_parameter::Dims& d = dims.emplace_back();
      return view_of(tensor, d.shape.data(), d.strides.data());
    };
    std::vector<gw_view> states;
    for (const Tensor& state : step.states) states.push_back(view(state));
    gw_optimizer_call call{};
    call.struct_size = sizeof call;
    call.name = step.name.c_str();
    const gw_view value = view(step.value), gradient = view(step.gradient);
    call.value = &value;
    call.gradient = &gradient;
    call.states = states.data();
    call.state_count = static_cast<int32_t>(states.size());
    call.lr = step.lr;
    call.weight_decay = step.weight_decay;
    call.step = step.step;
    call.stream = stream.native();
    run_callback("step", name_, [&] { return step_(user_.object(), &call); });
  }

 private:
  const std::string name_;
  const gw_optimizer_step_fn step_;
  const CallerObject user_;
};

}  // namespace

void gw_custom_optimizer_options_init(gw_custom_optimizer_options* options, size_t size) {
  init_struct(options, size, common_defaults<gw_custom_optimizer_options>(1e-3, 0));
}

gw_status gw_custom_optimizer_create(gw_module* model, const gw_custom_optimizer_options* options,
                                     gw_optimizer** out_optimizer) {
  CallerObject user = object_of(options);
  return guarded([&] {
    gw_optimizer*& result = out(out_optimizer, "out_optimizer");
    const auto o = read_struct(&required(options, "options"), gw_custom_optimizer_options_init, "options");
    if (o.step == nullptr) fail(Code::invalid_argument, "options.step is null");
    CustomOptimizerOptions own;
    own.name = text_or(o.name, "custom");
    if (o.state_count > 0) required(o.states, "options.states");
    for (size_t i = 0; i < o.state_count; ++i)
      own.states.emplace_back(&required(o.states[i], text("options.states[", i, "]").c_str()));
    Model& m = required(model, "model").ready();
    m.run().order(EntryStream::use(m.device().stream()));  // on which the states are made
    result = new gw_optimizer(
        model->model, make_custom_optimizer(own, std::make_unique<Stepper>(own.name, o.step, std::move(user)),
                                            m.inspect().parameters(), common_of(o), m.ops()));
  });
}

gw_status gw_optimizer_set_schedule(gw_optimizer* optimizer, gw_schedule_fn factor, void* user,
                                    gw_free_fn release) {
  const auto owned = std::make_shared<CallerObject>(user, release);
  return guarded([&] {
    Optimizer& o = *required(optimizer, "optimizer").optimizer;
    if (factor == nullptr) fail(Code::invalid_argument, "factor is null");
    o.set_schedule([factor, owned, name = std::string(o.kind())](int64_t step) {
      double given = 0;
      run_callback("schedule", name, [&] { return factor(owned->object(), step, &given); });
      return given;
    });
  });
}
