// Custom modules: runs the caller's gw_call_fn callbacks as the phases of a module.
#include <gangway/custom.h>

#include <deque>
#include <sstream>

#include "module_handle.h"
#include "nn/custom.h"
#include "nn/ids.h"
#include "parallel/plan.h"
#include "parameter_options.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

// Storage for the shape and strides of one view. In the shapes phase the callback rewrites them.
struct OwnedView {
  std::array<int64_t, kMaxDims> shape{}, strides{};
};

// The object that gw_call::context points to: the call in progress, and the storage of every view that the
// callback got in it.
struct CallbackContext {
  explicit CallbackContext(CustomBehaviour::Call& c) : call(c) {}
  gw_view view(const Tensor& tensor) {
    if (!tensor) return gw_view{};
    OwnedView& place = places.emplace_back();
    known.push_back(tensor);
    return view_of(tensor, place.shape.data(), place.strides.data());
  }
  std::vector<gw_view> views(std::span<const Tensor> tensors) {
    std::vector<gw_view> all;
    for (const Tensor& tensor : tensors) all.push_back(view(tensor));
    return all;
  }
  // Returns the tensor of a view. If the view shows a tensor that the callback got from the library, it is
  // that tensor; the caller's own memory is copied, and the copy lives as long as the frame.
  Tensor tensor(const gw_view& given, const std::string& name, bool gradient) {
    Context& ctx = call.ctx;
    Tensor borrowed = input_of(given, ctx.stream, name);
    for (const Tensor& mine : known)
      if (mine.raw() == borrowed.raw() && mine.dtype() == borrowed.dtype() &&
          mine.count() == borrowed.count() && mine.contiguous() && borrowed.contiguous())
        return mine.reshape(borrowed.shape());
    const Tensor copy = call.frame == nullptr ? ctx.temporaries.allocate(borrowed.dtype(), borrowed.shape())
                        : gradient ? call.frame->allocate_gradient(borrowed.dtype(), borrowed.shape())
                                   : call.frame->allocate(borrowed.dtype(), borrowed.shape());
    ctx.ops.cast(borrowed, copy, ctx.stream);
    return copy;
  }

  CustomBehaviour::Call& call;
  std::deque<OwnedView> places;  // a deque, because views hold the addresses of its elements
  std::vector<Tensor> known;
};

CallbackContext& callback_context(gw_call* call) {
  gw_call& c = required(call, "call");
  if (c.context == nullptr)
    fail(Code::invalid_state, "call has no module that runs; use the call a callback was given");
  CallbackContext& r = *static_cast<CallbackContext*>(c.context);
  EntryStream::use(r.call.ctx.stream);
  return r;
}

Module& child_of(CallbackContext& r, int32_t child) {
  const Module& parent = r.call.module;
  if (child < 0 || static_cast<size_t>(child) >= parent.children().size())
    fail(Code::invalid_argument, "child is ", child, ", the module has ", parent.children().size());
  return parent.child(static_cast<size_t>(child));  // with its wrappers
}

// Copies the argument views: the caller may pass the same array for arguments and results.
std::vector<gw_view> views_of(const gw_view* views, size_t count) {
  if (views == nullptr) return {};
  return {views, views + count};
}

void return_views(CallbackContext& context, const Values& results, gw_view out_views[], size_t capacity,
                  size_t* out_count) {
  check_room(out_views, "out_views", results.size(), capacity);
  for (size_t i = 0; i < results.size(); ++i) out_views[i] = context.view(results[i]);
  *out_count = results.size();
}

class Callbacks final : public CustomBehaviour {
 public:
  Callbacks(const gw_custom_options& o, CallerObject user)
      : options_(o), name_(text_or(o.name, "Custom")), user_(std::move(user)) {}

  std::vector<Spec> shapes(Custom& module, Context& ctx, std::span<const Spec> inputs) override {
    if (options_.shapes == nullptr)
      return std::vector<Spec>(static_cast<size_t>(options_.output_count), Spec{DType::f64, Shape{1}});
    std::deque<OwnedView> places;
    std::vector<gw_view> in, outs;
    const auto describe = [&](const Spec& spec) {
      OwnedView& place = places.emplace_back();
      for (int d = 0; d < spec.shape.rank(); ++d) place.shape[static_cast<size_t>(d)] = spec.shape[d];
      gw_view v{};
      v.device_type = static_cast<int32_t>(ctx.ops.device().kind());
      v.ndim = spec.shape.rank();
      v.dtype = gw_dtype_of(spec.dtype);
      v.shape = place.shape.data();
      return v;
    };
    for (const Spec& spec : inputs) in.push_back(describe(spec));
    for (int i = 0; i < options_.output_count; ++i)
      outs.push_back(describe(inputs.empty() ? Spec{DType::f32, {}} : inputs[0]));
    const std::vector<gw_view> before = outs;
    Call none{module, ctx, nullptr, {}, {}, {}, {}, {}, nullptr};
    gw_call call = start(none, GW_PHASE_SHAPES);
    call.input_count = static_cast<int32_t>(in.size());
    call.inputs = in.data();
    call.output_count = options_.output_count;
    call.outputs = outs.data();
    run_callback("shapes", name_, [&] { return options_.shapes(user_.object(), &call); });
    std::vector<Spec> result;
    for (size_t i = 0; i < outs.size(); ++i) {
      if (outs[i].shape != before[i].shape)
        fail(Code::invalid_argument, name_, ": shapes replaced outputs[", i,
             "].shape; write the numbers behind it");
      if (outs[i].ndim < 0 || outs[i].ndim > kMaxDims)
        fail(Code::invalid_argument, name_, ": shapes set outputs[", i, "].ndim to ", outs[i].ndim);
      result.push_back({dtype_of(outs[i].dtype),
                        Shape(std::span<const int64_t>(outs[i].shape, static_cast<size_t>(outs[i].ndim)))});
    }
    return result;
  }

  void forward(Call& call) override { run(call, GW_PHASE_FORWARD, options_.forward, "forward"); }
  void backward_input(Call& call) override {
    run(call, GW_PHASE_BACKWARD_INPUT, options_.backward_input, "backward_input");
  }
  bool has_backward_weight() const override { return options_.backward_weight != nullptr; }
  void backward_weight(Call& call) override {
    run(call, GW_PHASE_BACKWARD_WEIGHT, options_.backward_weight, "backward_weight");
  }
  void free_state(void* state) noexcept override {
    if (options_.free_state != nullptr) options_.free_state(state);
  }
  bool accepts(DType compute) const override {
    if (options_.accepts_dtype == nullptr) return true;
    bool yes = false;
    run_callback("accepts_dtype", name_, [&] {
      yes = options_.accepts_dtype(user_.object(), gw_dtype_of(compute)) != 0;
      const std::string& said = CallbackText::innermost()->text;
      if (!yes && !said.empty())
        fail(Code::not_supported, name_, ": its accepts_dtype callback refused ", name(compute), ": ", said);
      return GW_OK;
    });
    return yes;
  }

 private:
  gw_call start(Call& call, gw_phase phase) const {
    gw_call c{};
    c.struct_size = sizeof c;
    c.phase = phase;
    c.training = call.ctx.training ? 1 : 0;
    c.recomputing = call.ctx.recomputing ? 1 : 0;
    c.microbatch = call.ctx.microbatch;
    c.step = call.ctx.step;
    c.seed = call_seed(call.ctx, call.module.full_name());
    c.gangs = static_cast<gw_gangs*>(call.ctx.caller);
    c.stream = call.ctx.stream.native();
    // The shapes phase has no loss scale: a step runs it before it knows N.
    if (phase != GW_PHASE_SHAPES) c.loss_scale = call.ctx.loss_scale;
    return c;
  }

  void run(Call& call, gw_phase phase, gw_call_fn function, const char* callback) {
    CallbackContext context(call);
    const std::vector<gw_view> inputs = context.views(call.inputs), grads = context.views(call.output_grads),
                               input_grads = context.views(call.input_grads);
    std::vector<gw_view> outputs = context.views(call.outputs), values, value_grads;
    for (const ParameterPtr& p : call.parameters) {
      values.push_back(context.view(p->value));
      value_grads.push_back(context.view(p->trainable && p->grad != nullptr ? p->grad->tensor : Tensor()));
    }
    gw_call c = start(call, phase);
    c.input_count = static_cast<int32_t>(inputs.size());
    c.output_count = static_cast<int32_t>(outputs.size());
    c.parameter_count = static_cast<int32_t>(values.size());
    c.inputs = inputs.data();
    c.outputs = outputs.data();
    c.output_grads = grads.data();
    c.input_grads = input_grads.data();
    c.parameters = values.data();
    c.parameter_grads = value_grads.data();
    c.state = &call.state;
    c.context = &context;
    run_callback(callback, name_, [&] { return function(user_.object(), &c); });
  }

  gw_custom_options options_;
  std::string name_;
  CallerObject user_;
};

std::string plan_of(const char* plan) {
  const std::string rows = text_or(plan, "");
  try {
    plan_from_text(rows);
  } catch (const Error& error) {
    fail(error.code(), "options.parallel_plan: ", error.message());
  }
  return rows;
}

std::vector<std::string> lines_of(const char* text) {
  std::vector<std::string> lines;
  std::istringstream all(text_or(text, ""));
  for (std::string line; std::getline(all, line);) {
    const size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    if (first != std::string::npos) lines.push_back(line.substr(first, last + 1 - first));
  }
  return lines;
}

}  // namespace

void gw_custom_options_init(gw_custom_options* options, size_t size) {
  gw_custom_options d{};
  d.input_count = d.output_count = 1;
  init_struct(options, size, d);
}

gw_status gw_custom_create(const gw_custom_options* options, gw_module** out_model) {
  CallerObject user = object_of(options);
  const bool whole = options != nullptr && options->struct_size >= offsetof(gw_custom_options, children) &&
                     options->struct_size <= kLargestStruct;
  Initializers initializers(whole ? options->parameters : nullptr, whole ? options->parameter_count : 0);
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    const gw_custom_options o = read_struct(&required(options, "options"), gw_custom_options_init, "options");
    if (o.forward == nullptr || o.backward_input == nullptr)
      fail(Code::invalid_argument, "options needs forward and backward_input");
    CustomOptions c;
    c.name = text_or(o.name, "Custom");
    c.input_count = o.input_count;
    c.output_count = o.output_count;
    c.parallel_plan = plan_of(o.parallel_plan);
    c.parameter_groups = lines_of(o.parameter_groups);
    if (o.parameter_count > 0) required(o.parameters, "options.parameters");
    for (size_t i = 0; i < o.parameter_count; ++i) {
      const gw_parameter_options p =
          read_element(o.parameters, i, gw_parameter_options_init, "options.parameters");
      if (p.is_buffer != 0 || p.alias_count != 0)
        fail(Code::not_supported, "options.parameters[", i, "] has is_buffer ", p.is_buffer, " and ",
             p.alias_count, " aliases, which parameters of a shard group have; leave both 0 here");
      c.parameters.push_back(
          {&required(p.name, "options.parameters[i].name"), shape_of(p), initializers.read(p.initializer)});
    }
    if (o.child_count > 0) required(o.children, "options.children");
    std::vector<ModulePtr> children;
    for (size_t i = 0; i < o.child_count; ++i) {
      const std::string name = text("options.children[", i, "]");
      children.push_back(required(o.children[i], name.c_str()).part(name));
      check_once(children, name);
      c.children.push_back(
          {o.child_names != nullptr ? text_or(o.child_names[i], "") : std::to_string(i), children.back()});
    }
    ModulePtr module = make_custom(c, std::make_shared<Callbacks>(o, std::move(user)));
    for (size_t i = 0; i < o.parameter_count; ++i)
      if (read_element(o.parameters, i, gw_parameter_options_init, "options.parameters").frozen != 0)
        module->parameters()[i]->trainable = false;
    result = new gw_module(std::move(module));
    if (o.child_count > 0) result->takes({o.children, o.child_count});
    initializers.take();
  });
}

gw_status gw_call_forward(gw_call* call, int32_t child, const gw_view* inputs, size_t input_count,
                          gw_view out_views[], size_t out_capacity, size_t* out_count) {
  return guarded([&] {
    const std::vector<gw_view> in = views_of(inputs, input_count);
    clear_out(out_views, out_capacity, out_count);
    if (input_count > 0) required(inputs, "inputs");
    CallbackContext& r = callback_context(call);
    Module& module = child_of(r, child);
    check_room(out_views, "out_views", module.output_count(input_count), out_capacity);
    Values values;
    for (size_t i = 0; i < input_count; ++i)
      values.push_back(r.tensor(in[i], text("inputs[", i, "]"), false));
    check_ids(r.call.ctx, module.id_rules(), values);
    return_views(r, module.forward(r.call.ctx, values, r.call.frame), out_views, out_capacity, out_count);
  });
}

gw_status gw_call_backward(gw_call* call, int32_t child, const gw_view* output_grads, size_t grad_count,
                           gw_view out_views[], size_t out_capacity, size_t* out_count) {
  return guarded([&] {
    const std::vector<gw_view> grads = views_of(output_grads, grad_count);
    clear_out(out_views, out_capacity, out_count);
    if (grad_count > 0) required(output_grads, "output_grads");
    CallbackContext& r = callback_context(call);
    Module& module = child_of(r, child);
    check_room(out_views, "out_views", module.gradient_count(), out_capacity);
    if (r.call.frame == nullptr) fail(Code::invalid_state, "gw_call_backward outside of a backward callback");
    Values values;
    for (size_t i = 0; i < grad_count; ++i)
      values.push_back(grads[i].data == nullptr ? Tensor()
                                                : r.tensor(grads[i], text("output_grads[", i, "]"), true));
    return_views(r, module.backward(r.call.ctx, values, *r.call.frame), out_views, out_capacity, out_count);
  });
}
