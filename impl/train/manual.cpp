#include "train/manual.h"

#include <optional>

#include "nn/ids.h"
#include "parallel/collective_call.h"
#include "train/sequence_parts.h"
#include "train/totals.h"

namespace gangway {
namespace {

const char* no_sync(const Model& model) { return model.run().is_last_backward() ? "off" : "on"; }

// The text that must be equal on all ranks. Ranks that differ in it would run different collectives, now or
// in backward, or add gradients of different precisions.
std::string arguments_of(const Model& model, std::span<const Tensor> inputs, bool training,
                         bool takes_parts) {
  std::string arguments =
      text("a forward ", training ? "with a frame (training)" : "without a frame (evaluation)", ", no_sync ",
           no_sync(model), takes_parts ? ", sequence_parts" : "", ", inputs");
  for (const Tensor& input : inputs) arguments += text(" ", name(input.dtype()));
  return arguments;
}

void check_gradients(const Specs& outputs, std::span<const Tensor> dy) {
  if (dy.size() > outputs.size())
    fail(Code::invalid_argument, "backward got ", dy.size(), " gradients, forward made ", outputs.size(),
         " outputs");
  for (size_t i = 0; i < dy.size(); ++i)
    if (!(dy[i].shape() == outputs[i].shape) || !is_floating(dy[i].dtype()))
      fail(Code::invalid_argument, "output_grads[", i, "] is ", dy[i].text(), ", the output was ",
           outputs[i].text());
}

template <typename Allocate>
Tensor copy_of(Context& ctx, const Tensor& tensor, Allocate&& allocate) {
  const Tensor copy = allocate(tensor.dtype(), tensor.shape());
  ctx.ops.cast(tensor, copy, ctx.stream);
  return copy;
}

// Copies results for the caller, because the memory of frames and stacks is reused.
Values results_of(Context& ctx, const Values& values) {
  Values copies;
  for (const Tensor& value : values)
    copies.push_back(value ? copy_of(ctx, value,
                                     [&](DType dtype, const Shape& shape) {
                                       return Tensor::allocate(ctx.ops.device().allocator(), dtype, shape);
                                     })
                           : Tensor());
  return copies;
}

// Whole outputs are made of parts of sequences, or of sums over a rank's own part such as a loss. Returns
// which are parts: dim 1 is as long as the part is, and would be as long as the whole is in `whole`, what the
// model makes of whole sequences. A custom module may not know its shapes before it runs.
std::vector<bool> parts_among(const Specs& outputs, const Specs& whole, int64_t tokens, int cp) {
  std::vector<bool> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Spec& output = outputs[i];
    const bool known = i < whole.size() && whole[i].dtype != DType{};
    parts.push_back(is_part(output.shape, tokens) && (!known || is_part(whole[i].shape, tokens * cp)));
    if (output.dtype == DType{} || parts.back()) continue;
    if (output.shape.count() == 1 && is_floating(output.dtype)) continue;
    fail(Code::not_supported, "over cp output ", i, " is ", output.text(),
         " on each rank: neither a part of ", tokens,
         " tokens nor one sum; a frame with sequence_parts takes and gives each rank's own part");
  }
  return parts;
}

// The whole of values of which this rank has those of its part of the sequences. Values that are no parts are
// sums.
Values whole_of(Model& model, const Values& values, const std::vector<bool>& parts, Stream& stream) {
  Values whole;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i])
      whole.emplace_back();
    else if (parts[i])
      whole.push_back(whole_value(model, values[i], stream));
    else
      whole.push_back(sum_of_parts(model, values[i], stream));
  }
  return whole;
}

// Inputs with two dims or more are sequences, and so are their gradients.
std::vector<bool> sequences_among(const Values& gradients) {
  std::vector<bool> parts;
  for (const Tensor& gradient : gradients) parts.push_back(gradient && gradient.rank() > 1);
  return parts;
}

// What a rank tells the others of the inputs of a forward.
struct InputTotals {
  uint64_t checksum = 0;  // of whole sequences that are cut; 0: none are
  int64_t rows = 0;
};

int64_t rows_of(std::span<const Tensor> inputs) {
  return inputs.empty() || inputs[0].rank() == 0 ? 0 : inputs[0].dim(0);
}

RowPlace agreed_rows(const Gangs& gangs, const std::vector<InputTotals>& all) {
  check_same_rows_over_cp(gangs, [&all](size_t r) { return all[r].checksum; });
  return row_place(gangs, [&all](size_t r) { return static_cast<uint64_t>(all[r].rows); });
}

// Runs the collective part of a call; if it fails, resets `frame`, which may be null.
template <typename Run>
Values run_or_reset(const CollectiveCall& call, ManualFrame* frame, Run&& run) {
  try {
    return call.run(run);
  } catch (...) {
    if (frame != nullptr) frame->reset();
    throw;
  }
}

}  // namespace

ManualFrame::ManualFrame(std::shared_ptr<Model> model, const ManualOptions& options)
    : model_(std::move(model)), options_(options), frame_(model_->memory()) {
  frame_.id = {options_.step, options_.microbatch, 0};
}

void ManualFrame::reset() {
  forward_.reset();
  frame_.reset();
}

Context ManualFrame::context(Stream& stream) const {
  Context ctx = model_->run().context(stream);
  ctx.training = true;
  ctx.loss_scale = options_.loss_scale;
  ctx.step = options_.step;
  ctx.microbatch = options_.microbatch;
  ctx.rows = rows_;
  ctx.first_row = first_row_;
  return ctx;
}

Values manual_forward(Model& model, std::span<const Tensor> inputs, ManualFrame* frame, Stream& stream) {
  std::optional<Context> made;
  Frame* const saved = frame != nullptr ? &frame->frame_ : nullptr;
  const bool takes_parts = frame != nullptr && frame->options_.sequence_parts;
  const int cp = model.gangs().mesh().degree(Axis::cp);
  std::optional<int64_t> tokens;  // of a part, if whole sequences are cut
  Specs whole;                    // the outputs of whole sequences
  std::string arguments;
  const CollectiveCall call(model.gangs(), "forward");
  const auto check = [&]() -> InputTotals {
    Context& ctx = made.emplace(frame != nullptr ? frame->context(stream) : model.run().context(stream));
    if (frame != nullptr && frame->awaits_backward())
      fail(Code::invalid_state,
           "frame has had a forward already; its backward or gw_frame_reset comes first");
    Specs specs = specs_of(inputs);
    if (cp > 1 && !takes_parts) {
      tokens = part_tokens(model, specs, "inputs");
      whole = model.run().check_forward(ctx, specs, nullptr);
      for (Spec& spec : specs) spec.shape = part_shape(model, spec.shape);
    }
    const Specs outputs = model.run().check_forward(ctx, specs, saved);
    if (tokens) static_cast<void>(parts_among(outputs, whole, *tokens, cp));
    check_ids(ctx, model.root().id_rules(), inputs);
    arguments = arguments_of(model, inputs, frame != nullptr, takes_parts);
    return {tokens ? checksum_of(inputs) : 0, rows_of(inputs)};
  };
  const RowPlace place = agreed_rows(model.gangs(), call.check(check, arguments));
  const StackScope scope(model.temporaries());
  return run_or_reset(call, frame, [&] {
    Context& ctx = *made;
    if (frame != nullptr) {
      const ManualOptions& of = frame->options_;
      ctx.rows = frame->rows_ = static_cast<int>(rows_of(inputs));
      ctx.first_row = frame->first_row_ =
          model.run().rows_before(of.step, of.microbatch, place.all) + place.first;
    }
    const auto allocate = [&](DType dtype, const Shape& shape) {
      return saved != nullptr ? saved->allocate(dtype, shape) : model.temporaries().allocate(dtype, shape);
    };
    Values own(inputs.begin(), inputs.end());
    if (frame != nullptr) frame->forward_ = model.run().await_backward();
    for (Tensor& value : own) {
      if (tokens) {
        const Tensor part = allocate(value.dtype(), part_shape(model, value.shape()));
        take_part(model, value, part, stream);
        value = part;
      } else if (frame != nullptr) {  // which lives on after the call, but the caller's arrays may not
        value = copy_of(ctx, value, allocate);
      }
    }
    const Values outputs = model.run().forward(ctx, own, saved);
    const std::vector<bool> parts =
        tokens ? parts_among(specs_of(outputs), whole, *tokens, cp) : std::vector<bool>();
    Values results = tokens ? whole_of(model, outputs, parts, stream) : results_of(ctx, outputs);
    if (frame != nullptr) {
      frame->outputs_ = specs_of(results);
      frame->is_cut_ = tokens.has_value();
      frame->parts_ = parts;
    }
    return results;
  });
}

Values manual_backward(ManualFrame& frame, std::span<const Tensor> dy, Stream& stream) {
  Model& model = *frame.model_;
  std::string arguments;
  const CollectiveCall call(model.gangs(), "backward");
  const auto check = [&] {
    if (!frame.awaits_backward())
      fail(Code::invalid_state, "frame has had no forward; gw_module_forward comes first");
    check_gradients(frame.outputs_, dy);
    model.run().check_computes("backward");
    arguments = text("a backward, no_sync ", no_sync(model));
  };
  call.check(check, arguments);
  const StackScope scope(model.temporaries());
  return run_or_reset(call, &frame, [&] {
    Context ctx = frame.context(stream);
    const auto allocate = [&](DType dtype, const Shape& shape) {
      return frame.frame_.allocate_gradient(dtype, shape);
    };
    Values grads;
    for (size_t i = 0; i < dy.size(); ++i) {
      const Tensor& gradient = dy[i];
      if (frame.is_cut_ && frame.parts_[i]) {
        grads.push_back(allocate(gradient.dtype(), part_shape(model, gradient.shape())));
        take_part(model, gradient, grads.back(), stream);
      } else {
        grads.push_back(copy_of(ctx, gradient, allocate));
      }
    }
    const Values made = model.run().backward(ctx, grads, frame.frame_);
    const Values dx =
        frame.is_cut_ ? whole_of(model, made, sequences_among(made), stream) : results_of(ctx, made);
    frame.reset();
    model.run().reshard();
    if (model.run().is_last_backward()) model.run().finish_gradients(stream);
    return dx;
  });
}

}  // namespace gangway
