#include "parallel/model/runner.h"

#include <algorithm>
#include <cmath>

#include "parallel/collective_call.h"
#include "parallel/model/clip.h"

namespace gangway {

ModelRunner::ModelRunner(ModelParts& parts)
    : parts_(parts),
      documents_(SequencePart{parts.gangs->coordinate(Axis::cp), parts.gangs->mesh().degree(Axis::cp)}) {}

void ModelRunner::check_trainable(const char* call) const {
  parts_.check_materialized(call);
  const Gang& gang = *parts_.gangs->root();
  if (gang.size() > 1 && !gang.has_peers() && parts_.ops->device().kind() != DeviceKind::meta)
    fail(Code::not_supported, call, ": training over a fake gang of ", gang.size(),
         " ranks: its peers have no data (device meta counts without them)");
}

void ModelRunner::check_computes(const char* call) const {
  if (!parts_.computes)
    fail(Code::invalid_state, call,
         ": a model of shard groups computes nothing; the caller does, between unshard and "
         "reshard");
  parts_.fsdp->check_exports();
}

void ModelRunner::order(Stream& stream) { parts_.fsdp->order(stream); }

void ModelRunner::enter(const char* call, Stream& stream) {
  parts_.check_materialized(call);
  order(stream);
}

Context ModelRunner::context(Stream& stream) {
  order(stream);
  int index = 0, count = 1;
  parts_.gangs->data_shard(&index, &count);
  return Context{.ops = *parts_.ops,
                 .stream = stream,
                 .temporaries = parts_.temporaries,
                 .seed = parts_.seed,
                 .data_index = index,
                 .tracer = &parts_.gangs->root()->owner()->tracer(),
                 .documents = &documents_};
}

void ModelRunner::check_whole(const char* call) const {
  if (parts_.pipeline != nullptr)
    fail(Code::not_supported, call, ": pp is ", parts_.gangs->mesh().degree(Axis::pp),
         "; train_step and eval_step run a model that is cut into stages");
}

Specs ModelRunner::check_forward(const Context& ctx, std::span<const Spec> inputs, const Frame* frame) {
  parts_.check_materialized("forward");
  check_computes("forward");
  check_whole("forward");
  if (frame != nullptr) check_trainable("forward");
  Context run = context_of(ctx, frame != nullptr);
  const StackScope scope(parts_.temporaries);
  return parts_.root->check_forward(run, inputs);
}

Values ModelRunner::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  enter("forward", ctx.stream);
  if (frame != nullptr) check_trainable("forward");
  if (frame != nullptr) frame->recompute = parts_.recompute;
  Context run = context_of(ctx, frame != nullptr);
  return parts_.root->forward(run, inputs, frame);
}

Values ModelRunner::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  enter("backward", ctx.stream);
  Context run = context_of(ctx, true);
  return parts_.root->backward(run, dy, frame);
}

Context ModelRunner::context_of(const Context& ctx, bool training) const {
  Context run = ctx;
  if (run.caller == nullptr) run.caller = caller_;
  run.training = ctx.training || training;
  return run;
}

void ModelRunner::finish_gradients(Stream& stream) {
  enter("finish_gradients", stream);
  parts_.fsdp->finish_gradients(stream);
}

void ModelRunner::set_is_last_backward(bool last) { parts_.fsdp->set_is_last_backward(last); }
bool ModelRunner::is_last_backward() const { return parts_.fsdp->is_last_backward(); }

void ModelRunner::reshard() {
  parts_.fsdp->reshard_all();
  drop_given_up();
  given_up_ = false;
}

void ModelRunner::zero_gradients(Stream& stream) {
  enter("zero_gradients", stream);
  parts_.fsdp->zero_gradients(stream);
}

void ModelRunner::give_up_run(Stream& stream) {
  reshard();
  if (parts_.fsdp->updating()) parts_.fsdp->end_update(true, false, stream);
}

std::shared_ptr<const void> ModelRunner::await_backward() {
  drop_given_up();
  std::shared_ptr<const void> forward = std::make_shared<char>();
  awaiting_.push_back(forward);
  return forward;
}

int64_t ModelRunner::rows_before(int64_t step, int microbatch, int64_t rows) {
  constexpr size_t kMostKept = 4096;  // of a loop that counts microbatches and never steps
  std::map<int, int64_t>& ends = rows_.ends;
  if (rows_.step != step) ends.clear();
  rows_.step = step;
  const auto next = ends.lower_bound(microbatch);
  int64_t before = microbatch * rows;
  if (next != ends.begin()) {
    const auto& [earlier, end] = *std::prev(next);
    before = end + (microbatch - earlier - 1) * rows;
  }
  if (next != ends.end() && next->first == microbatch && next->second == before + rows) return before;
  ends.erase(next, ends.end());
  ends[microbatch] = before + rows;
  if (ends.size() > kMostKept) ends.erase(ends.begin());
  return before;
}

double ModelRunner::gradient_norm(double p, Stream& stream) {
  enter("gradient_norm", stream);
  parts_.fsdp->finish_gradients(stream);
  return gangway::gradient_norm(*parts_.fsdp, *parts_.ops, p, stream);
}

double ModelRunner::clip_gradients(double most, double p, Stream& stream) {
  const CollectiveCall call(*parts_.gangs, "clip_grad_norm");
  std::string arguments;
  const auto check_all = [&] {
    CallSignature signature("clip_grad_norm");
    signature.add("max_norm", most);
    signature.add("p", p);
    arguments = signature.text();
    if (!(std::isfinite(most) && most > 0))
      fail(Code::invalid_argument, "max_norm is ", most, ", not a finite number over 0");
    check_norm_type("p", p);
    parts_.check_materialized("clip_grad_norm");
    check_reduced("clip_grad_norm");
  };
  call.check(check_all, arguments);
  return call.run([&] {
    const double norm = gradient_norm(p, stream);
    scale_gradients(clip_factor(norm, most), stream);
    return norm;
  });
}

void ModelRunner::scale_gradients(double factor, Stream& stream) {
  enter("scale_gradients", stream);
  parts_.fsdp->finish_gradients(stream);
  for (const NamedParameter& p : parts_.parameters)
    if (p.parameter->shard_grad != nullptr && p.parameter->shard_grad->tensor.count() != 0)
      parts_.ops->scale(p.parameter->shard_grad->tensor, factor, stream);
}

void ModelRunner::check_update() const {
  parts_.check_materialized("begin_update");
  if (std::any_of(awaiting_.begin(), awaiting_.end(), [](const auto& forward) { return !forward.expired(); }))
    fail(Code::invalid_state,
         "begin_update: a forward awaits its backward; gw_module_backward or gw_frame_reset comes first");
  parts_.fsdp->check_update(/*reshards=*/given_up_ || !awaiting_.empty());
}

void ModelRunner::check_reduced(const char* call) const { parts_.fsdp->check_reduced(call); }

void ModelRunner::drop_given_up() {
  if (std::erase_if(awaiting_, [](const auto& forward) { return forward.expired(); }) != 0) given_up_ = true;
}

void ModelRunner::begin_update(Stream& stream) {
  enter("begin_update", stream);
  if (given_up_ || !awaiting_.empty()) reshard();
  parts_.fsdp->begin_update(stream);
}

void ModelRunner::end_update(Stream& stream, bool copies_written) {
  enter("end_update", stream);
  parts_.fsdp->end_update(!copies_written, true, stream);
}

}  // namespace gangway
