// Manual forward and backward.
#include <gangway/frame.h>

#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

void return_tensors(const Values& values, Model& model, gw_tensor** out_tensors, size_t capacity,
                    size_t* out_count) {
  if (values.size() > capacity)  // check_room has compared capacity with the number that the module declares
    fail(Code::internal, "the module gave ", values.size(), " tensors, but out_capacity is ", capacity);
  EntryStream::submit();  // first, because after an error the caller must get no handles
  std::vector<std::unique_ptr<gw_tensor>> handles;
  for (const Tensor& value : values)
    handles.push_back(value ? std::make_unique<gw_tensor>(value, model.gangs().root()) : nullptr);
  for (size_t i = 0; i < handles.size(); ++i) out_tensors[i] = handles[i].release();
  *out_count = handles.size();
}

ManualFrame& frame_of(const gw_module& model, gw_frame* frame) {
  if (required(frame, "frame").frame.model() != model.model)
    fail(Code::invalid_argument, "frame belongs to another model");
  return frame->frame;
}

}  // namespace

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
    result = new gw_frame(model->model, {o.loss_scale, o.step, o.microbatch, o.sequence_parts != 0});
  });
}

gw_status gw_frame_reset(gw_frame* frame) {
  return guarded([&] { required(frame, "frame").frame.reset(); });
}

gw_frame* gw_frame_retain(gw_frame* frame) { return retain(frame); }
void gw_frame_release(gw_frame* frame) { release(frame); }

gw_status gw_module_forward(gw_module* model, const gw_view* inputs, size_t input_count, gw_frame* frame,
                            void* stream, gw_tensor* out_tensors[], size_t out_capacity, size_t* out_count) {
  return guarded([&] {
    clear_out(out_tensors, out_capacity, out_count);
    Model& m = required(model, "model").ready();
    Stream* ordered_on = nullptr;
    ManualFrame* saved = nullptr;
    std::vector<Tensor> tensors;
    CollectiveCall(m.gangs(), "forward").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
      if (frame != nullptr) saved = &frame_of(*model, frame);
      check_room(out_tensors, "out_tensors", m.root().output_count(input_count), out_capacity);
      tensors = tensors_of(inputs, input_count, *ordered_on, "inputs");
    });
    return_tensors(manual_forward(m, tensors, saved, *ordered_on), m, out_tensors, out_capacity, out_count);
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
    CollectiveCall(m.gangs(), "backward").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
      frame_of(*model, frame);
      check_room(out_tensors, "out_tensors", m.root().gradient_count(), out_capacity);
      tensors = tensors_of(output_grads, grad_count, *ordered_on, "output_grads");
    });
    return_tensors(manual_backward(frame->frame, tensors, *ordered_on), m, out_tensors, out_capacity,
                   out_count);
  });
}

gw_status gw_module_set_no_sync(gw_module* model, int32_t no_sync) {
  return guarded([&] { required(model, "model").ready().run().set_is_last_backward(no_sync == 0); });
}
