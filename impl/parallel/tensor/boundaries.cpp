#include "parallel/tensor/boundaries.h"

#include "nn/gradient.h"

namespace gangway {
namespace {

// Returns whether the first module to read the input of `module` is a Linear, with no wrapper in front of it
// that would read the input earlier.
bool multiplies_first(const Module& module) {
  const Module* reader = first_reader(module);
  return dynamic_cast<const Linear*>(reader != nullptr ? reader : &module) != nullptr;
}

// Only training sends a sequence in chunks: evaluation and generation take sequences of any length, which the
// number of chunks need not divide.
bool in_chunks(const ChunkedMove& chunks, const Context& ctx, const Frame* frame) {
  return chunks.move != nullptr && (ctx.training || frame != nullptr);
}

}  // namespace

Boundaries::Boundaries(ModulePtr inner, RedistributePtr before, RedistributePtr after, ChunkedMove chunks,
                       std::vector<RedistributePtr> further, std::shared_ptr<CodedGather> codes)
    : before_(std::move(before)),
      after_(std::move(after)),
      chunks_(std::move(chunks)),
      further_(std::move(further)),
      codes_(std::move(codes)) {
  set_full_name(inner->full_name());
  add_child("", std::move(inner));
}

void Boundaries::add_options(CallSignature& signature) const {
  signature.add("input", before_ == nullptr ? "as it comes" : before_->text());
  signature.add("output", after_ == nullptr ? "as it is" : after_->text());
  signature.add("input chunks", chunks_.chunks);
  if (codes_ != nullptr) signature.add("input codes", true);
  for (const RedistributePtr& move : further_)
    signature.add("further input", move == nullptr ? "as it comes" : move->text());
}

Specs Boundaries::check_forward(Context& ctx, std::span<const Spec> inputs) {
  first_input(inputs, *this);
  Specs x(inputs.begin(), inputs.end());
  if (chunks_.move != nullptr && ctx.training) SequenceChunks::checked(x[0].shape, chunks_.chunks);
  if (before_ != nullptr) x[0] = before_->check_forward(ctx, {x.data(), 1})[0];
  check_count(x.size());
  for (size_t i = 0; i < further_.size(); ++i)
    if (further_[i] != nullptr) x[i + 1] = further_[i]->check_forward(ctx, {&x[i + 1], 1})[0];
  Specs y = child(0).check_forward(ctx, x);
  if (after_ != nullptr && !y.empty()) y[0] = after_->check_forward(ctx, {y.data(), 1})[0];
  return y;
}

Values Boundaries::prepared(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const {
  Values x(inputs.begin(), inputs.end());
  if (before_ != nullptr) x.at(0) = before_->forward_one(ctx, x[0], frame);
  move_further(ctx, x, frame);
  return x;
}

void Boundaries::check_count(size_t inputs) const {
  if (inputs <= further_.size())
    fail(Code::invalid_argument, "module ", full_name(), ": the plan prepares ", further_.size() + 1,
         " inputs, but it gets ", inputs);
}

void Boundaries::move_further(Context& ctx, Values& x, Frame* frame) const {
  check_count(x.size());
  for (size_t i = 0; i < further_.size(); ++i)
    if (further_[i] != nullptr) x.at(i + 1) = further_[i]->forward_one(ctx, x.at(i + 1), frame);
}

Values Boundaries::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  first_input(inputs, *this);
  Values y = forward_inner(ctx, inputs, frame);
  if (after_ != nullptr) y.at(0) = after_->forward_one(ctx, y[0], frame);
  return y;
}

Values Boundaries::forward_inner(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  if (codes_ != nullptr && CodedGather::takes(inputs[0]))
    if (const std::vector<Linear*> layers = layers_that_share_codes(child(0)); !layers.empty())
      return forward_codes(ctx, inputs, frame, layers);
  if (in_chunks(chunks_, ctx, frame) && multiplies_first(child(0)))
    return forward_as_it_arrives(ctx, inputs, frame);
  return child(0).forward(ctx, prepared(ctx, inputs, frame), frame);
}

Values Boundaries::forward_as_it_arrives(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const {
  Values x(inputs.begin(), inputs.end());
  x.at(0) = before_->forward_output(ctx, inputs[0], frame);
  ArrivingSequence arriving(ctx, chunks_, inputs[0], x[0]);
  move_further(ctx, x, frame);
  Context inner = ctx;
  inner.arriving = &arriving;
  return child(0).forward(inner, x, frame);
}

Values Boundaries::forward_codes(Context& ctx, std::span<const Tensor> inputs, Frame* frame,
                                 const std::vector<Linear*>& layers) {
  Values x(inputs.begin(), inputs.end());
  const Shape whole = before_->forward_plan(x[0].shape())->after;
  const ChunkedMove* const chunks = in_chunks(chunks_, ctx, frame) ? &chunks_ : nullptr;
  // Before the first gather starts, because an error later breaks the gang.
  for (const Linear* layer : layers) layer->check_input({x[0].dtype(), whole});
  if (chunks != nullptr) SequenceChunks::checked(x[0].shape(), chunks->chunks);
  check_count(x.size());
  const auto coded = codes_->start(ctx, layers, x[0], chunks, frame, *this);
  x[0] = coded->operand().codes.reshape(whole);
  move_further(ctx, x, frame);
  Context inner = ctx;
  inner.arriving = coded.get();
  return child(0).forward(inner, x, frame);
}

Tensor Boundaries::recompute(Context& ctx, Frame& frame, int index) {
  const std::vector<Linear*> layers = layers_that_share_codes(child(0));
  GW_CHECK(layers.empty(), ==, false);
  return codes_->recompute(ctx, frame, index, *layers.front()->fp8(), *this);
}

Values Boundaries::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  Values outer(dy.begin(), dy.end());
  if (after_ != nullptr) outer.at(0) = after_->backward_one(ctx, outer[0], frame);
  Values dx = child(0).backward(ctx, outer, frame);
  if (before_ != nullptr) dx.at(0) = before_->backward_one(ctx, dx[0], frame);
  for (size_t i = 0; i < further_.size(); ++i)
    if (further_[i] != nullptr && dx.at(i + 1)) dx[i + 1] = further_[i]->backward_one(ctx, dx[i + 1], frame);
  return dx;
}

void Boundaries::add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) {
  if (before_ != nullptr || !further_.empty()) return Module::add_backward(ctx, dy, frame, dx);
  child(0).add_backward(ctx, after_ == nullptr ? dy : after_->backward_one(ctx, dy, frame), frame, dx);
}

PartialSum::PartialSum(std::shared_ptr<Linear> linear, RedistributePtr before, RedistributePtr sum,
                       ChunkedMove chunks)
    : Boundaries(linear, std::move(before), std::move(sum)),
      linear_(linear.get()),
      sum_chunks_(std::move(chunks)) {}

PartialSum::PartialSum(std::shared_ptr<Embedding> embedding, RedistributePtr before, RedistributePtr sum)
    : Boundaries(embedding, std::move(before), std::move(sum)), embedding_(embedding.get()) {}

void PartialSum::add_options(CallSignature& signature) const {
  Boundaries::add_options(signature);
  signature.add("output chunks", sum_chunks_.chunks);
}

Specs PartialSum::check_forward(Context& ctx, std::span<const Spec> inputs) {
  Specs y = Boundaries::check_forward(ctx, inputs);
  if (sum_chunks_.move != nullptr && ctx.training && !y.empty())
    SequenceChunks::checked(y[0].shape, sum_chunks_.chunks);
  return y;
}

Values PartialSum::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  first_input(inputs, *this);
  const Tensor x = prepared(ctx, inputs, frame)[0];
  const Spec input = spec_of(x), part = child(0).check_forward(ctx, {&input, 1})[0];
  const Redistribute::PlanPtr plan = after().forward_plan(part.shape);
  // Allocated before the addend, because temporaries are freed in the reverse order and the addend is freed
  // first.
  const Tensor y = make_output(ctx, frame, part.dtype, plan->after);
  {
    const StackScope scope(ctx.temporaries);
    if (in_chunks(sum_chunks_, ctx, frame)) {
      const Linear::Operands operands = linear_->operands(ctx, x, frame);
      sum_in_chunks(ctx, sum_chunks_, y, [&](const RowRange& rows, const Tensor& share) {
        linear_->product(ctx, operands.rows(rows.first, rows.last), share);
      });
      linear_->save_input(x, operands, frame);
    } else {
      const Tensor own = plan->moves.empty() ? y : ctx.temporaries.allocate(part.dtype, part.shape);
      compute_part(ctx, x, own, frame);
      Redistribute::Started sum = after().start_forward(ctx, own, y);
      after().finish(ctx, sum);
    }
  }
  if (linear_ != nullptr && linear_->skips_bias_add()) return {y, linear_->copy_of_bias(ctx, frame)};
  add_bias(ctx, y);
  return {y};
}

void PartialSum::compute_part(Context& ctx, const Tensor& x, const Tensor& part, Frame* frame) const {
  if (linear_ == nullptr) return embedding_->look_up(ctx, x, part, frame);
  const Linear::Operands operands = linear_->operands(ctx, x, frame);
  linear_->product(ctx, operands, part.flatten2());
  linear_->save_input(x, operands, frame);
}

void PartialSum::add_bias(Context& ctx, const Tensor& y) const {
  if (linear_ == nullptr || linear_->bias() == nullptr) return;
  add_to_rows(ctx, value_of(*linear_->bias()), y.flatten2());
}

}  // namespace gangway
