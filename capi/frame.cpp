// Forward and backward by hand.
#include "module_handle.h"
#include "nn/ids.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

using Copies = std::vector<std::unique_ptr<gw_tensor>>;

// Results for the caller: copies, because a frame's and a stack's memory is used again.
Copies copies_of(const Values& values, Model& model, size_t room, Stream& stream) {
  if (values.size() > room) fail(Code::internal, values.size(), " results came, ", room, " were expected");
  Copies copies;
  for (const Tensor& value : values) {
    copies.push_back(nullptr);
    if (!value) continue;
    const Tensor copy = Tensor::allocate(model.device().allocator(), value.dtype(), value.shape());
    model.ops().cast(value, copy, stream);
    copies.back() = std::make_unique<gw_tensor>(copy, model.gangs().root());
  }
  return copies;
}

void hand_out(Copies copies, gw_tensor** out_tensors, size_t* out_count) noexcept {
  for (size_t i = 0; i < copies.size(); ++i) out_tensors[i] = copies[i].release();
  *out_count = copies.size();
}

Context context_of(Model& model, const gw_frame* frame, Stream& stream) {
  Context ctx = model.context(stream);
  ctx.training = frame != nullptr;
  if (frame != nullptr) {
    ctx.loss_scale = frame->options.loss_scale;
    ctx.step = frame->options.step;
    ctx.microbatch = frame->options.microbatch;
  }
  return ctx;
}

// `frame` (or null) is given up when the run fails.
template <typename Run>
Copies run_by_hand(const CollectiveCall& call, gw_frame* frame, Run&& run) {
  try {
    return call.run(run);
  } catch (...) {
    if (frame != nullptr) frame->reset();
    throw;
  }
}

const char* no_sync(const Model& model) { return model.is_last_backward() ? "off" : "on"; }

// Ranks that differ in any of this would run different collectives, now or in backward, or sum up what was computed in
// different precisions.
std::string forward_said(const Model& model, const std::vector<Tensor>& inputs, const Frame* frame) {
  std::string words =
      text("a forward ", frame != nullptr ? "with a frame (training)" : "without a frame (evaluation)",
           ", no_sync ", no_sync(model), ", inputs");
  for (const Tensor& input : inputs) words += text(" ", name(input.dtype()));
  return words;
}

gw_frame& frame_of(const gw_module& model, gw_frame* frame) {
  if (required(frame, "frame").model != model.model)
    fail(Code::invalid_argument, "frame belongs to another model");
  return *frame;
}

Specs without_values(const Values& outputs) {
  Specs specs;
  for (const Tensor& y : outputs) specs.push_back({y.dtype(), y.shape()});
  return specs;
}

// None for a loss; which of the others may lack is the module's to say.
void check_gradients(const Specs& outputs, const std::vector<Tensor>& grads) {
  if (grads.size() > outputs.size())
    fail(Code::invalid_argument, "backward got ", grads.size(), " gradients, forward made ", outputs.size(),
         " outputs");
  for (size_t i = 0; i < grads.size(); ++i)
    if (!(grads[i].shape() == outputs[i].shape) || !is_floating(grads[i].dtype()))
      fail(Code::invalid_argument, "output_grads[", i, "] is ", grads[i].text(), ", the output was ",
           outputs[i].text());
}

}  // namespace

gw_frame::gw_frame(std::shared_ptr<Model> m, const gw_frame_options& o)
    : model(std::move(m)), frame(model->device().allocator()), options(o) {
  frame.id = {o.step, o.microbatch, 0};
}

void gw_frame::give_up() noexcept {
  if (forward) forward->give_up();
  forward.reset();
}

void gw_frame::reset() {
  give_up();
  frame.reset();
}

void gw_frame_options_init(gw_frame_options* options, size_t size) {
  gw_frame_options d{};
  d.loss_scale = 1;
  init_struct(options, size, d);
}

gw_status gw_frame_create(gw_module* model, const gw_frame_options* options, gw_frame** out_frame) {
  return guarded([&] {
    gw_frame*& result = out(out_frame, "out_frame");
    const gw_frame_options o = read_struct(options, gw_frame_options_init, "options");
    required(model, "model").ready();
    finite(o.loss_scale, "options.loss_scale");
    result = new gw_frame(model->model, o);
  });
}

gw_status gw_frame_reset(gw_frame* frame) {
  return guarded([&] { required(frame, "frame").reset(); });
}

gw_frame* gw_frame_retain(gw_frame* frame) { return retain(frame); }
void gw_frame_release(gw_frame* frame) { release(frame); }

gw_status gw_module_forward(gw_module* model, const gw_view* inputs, size_t input_count, gw_frame* frame,
                            void* stream, gw_tensor* out_tensors[], size_t out_capacity, size_t* out_count) {
  return guarded([&] {
    clear_out(out_tensors, out_capacity, out_count);
    Model& m = required(model, "model").ready();
    Frame* const saved = frame != nullptr ? &frame->frame : nullptr;
    std::optional<Context> context;
    std::vector<Tensor> tensors;
    std::string words;
    const CollectiveCall call(m.gangs(), "forward");
    const auto check = [&] {
      context.emplace(context_of(m, frame, m.device().wrap_stream(stream)));
      if (frame != nullptr && frame_of(*model, frame).forward)
        fail(Code::invalid_state,
             "frame has had a forward already; its backward or gw_frame_reset comes first");
      check_room(out_tensors, "out_tensors", m.root().output_count(input_count), out_capacity);
      tensors = tensors_of(inputs, input_count, m.device(), "inputs");
      m.check_forward(*context, specs_of(tensors), saved);
      check_ids(*context, m.root().id_rules(), tensors);
      words = forward_said(m, tensors, saved);
    };
    call.check(check, words);
    Context& ctx = *context;
    const StackScope scope(m.temporaries());
    const auto run = [&] {
      if (frame != nullptr) frame->forward = m.begin_by_hand();
      // A frame outlives the call, the caller's arrays need not: it saves its own copies.
      if (saved != nullptr)
        for (Tensor& value : tensors) {
          const Tensor copy = saved->allocate(value.dtype(), value.shape());
          m.ops().cast(value, copy, ctx.stream);
          value = copy;
        }
      const Values outputs = m.forward(ctx, tensors, saved);
      if (frame != nullptr) frame->outputs = without_values(outputs);
      return copies_of(outputs, m, out_capacity, ctx.stream);
    };
    hand_out(run_by_hand(call, frame, run), out_tensors, out_count);
  });
}

gw_status gw_module_backward(gw_module* model, const gw_view* output_grads, size_t grad_count,
                             gw_frame* frame, void* stream, gw_tensor* out_tensors[], size_t out_capacity,
                             size_t* out_count) {
  return guarded([&] {
    clear_out(out_tensors, out_capacity, out_count);
    Model& m = required(model, "model").ready();
    Stream* ordered_on = nullptr;
    std::vector<Tensor> tensors;
    std::string words;
    const CollectiveCall call(m.gangs(), "backward");
    const auto check = [&] {
      ordered_on = &m.device().wrap_stream(stream);
      const gw_frame& given = frame_of(*model, frame);
      if (!given.forward)
        fail(Code::invalid_state, "frame has had no forward; gw_module_forward comes first");
      check_room(out_tensors, "out_tensors", m.root().gradient_count(), out_capacity);
      tensors = tensors_of(output_grads, grad_count, m.device(), "output_grads");
      check_gradients(given.outputs, tensors);
      m.check_backward(*given.forward);
      words = text("a backward, no_sync ", no_sync(m));
    };
    call.check(check, words);
    gw_frame& f = *frame;
    const StackScope scope(m.temporaries());
    Context ctx = context_of(m, frame, *ordered_on);
    const auto run = [&] {
      m.begin_backward(*f.forward);
      Values grads;
      for (const Tensor& tensor : tensors) {
        grads.push_back(f.frame.allocate_gradient(tensor.dtype(), tensor.shape()));
        m.ops().cast(tensor, grads.back(), ctx.stream);
      }
      const Values dx = m.backward(ctx, grads, f.frame);
      m.reshard();
      if (m.is_last_backward()) m.finish_gradients(ctx.stream);
      m.end_backward(*f.forward);
      return copies_of(dx, m, out_capacity, ctx.stream);
    };
    hand_out(run_by_hand(call, frame, run), out_tensors, out_count);
    f.forward.reset();
    f.frame.reset();
  });
}

gw_status gw_module_set_no_sync(gw_module* model, int32_t no_sync) {
  return guarded([&] { required(model, "model").ready().set_is_last_backward(no_sync == 0); });
}
