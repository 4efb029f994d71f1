#include "nn/frame.h"

#include <algorithm>

#include "nn/compact.h"
#include "nn/module.h"

namespace gangway {

Frame::~Frame() {
  for (auto& [module, state] : user_states_)
    if (state.release != nullptr) state.release(state.state, state.context);
}

int Frame::find_producer(const Tensor& tensor) const {
  if (tensor.count() == 0) return -1;  // an empty tensor has the address of the next allocation
  const auto found = producer_of_.find({tensor.buffer().get(), tensor.byte_offset()});
  if (found == producer_of_.end()) return -1;
  return producers_[static_cast<size_t>(found->second)].place.lock() == tensor.buffer() ? found->second : -1;
}

void Frame::save(const Module& owner, int slot, const Tensor& tensor) {
  if (slots_.contains({&owner, slot}))
    fail(Code::invalid_state, owner.kind(), owner.full_name().empty() ? "" : " ", owner.full_name(),
         ": slot ", slot, " of the frame is taken; a module runs once in a frame");
  Slot& place = slots_[{&owner, slot}];
  place.shape = tensor.shape();
  place.producer = find_producer(tensor);
  if (place.producer < 0) {
    place.tensor = tensor;
  } else {
    producers_[static_cast<size_t>(place.producer)].saved = true;
  }
}

bool Frame::keeps(const Tensor& tensor) const {
  const size_t first = tensor.byte_offset(), last = first + tensor.bytes();
  return std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
    const Tensor& kept = slot.second.tensor;
    return kept && kept.buffer() == tensor.buffer() && kept.byte_offset() < last &&
           kept.byte_offset() + kept.bytes() > first;
  });
}

void Frame::recomputable(const Tensor& tensor, Module& producer, int index, RecomputeWhen when) {
  producer_of_[{tensor.buffer().get(), tensor.byte_offset()}] = static_cast<int>(producers_.size());
  Producer& entry = producers_.emplace_back();
  entry.module = &producer;
  entry.index = index;
  entry.when = when;
  entry.place = tensor.buffer();
}

Tensor Frame::kept(Context& ctx, const Tensor& tensor) {
  if (!tensor || find_producer(tensor) < 0) return tensor;
  const Tensor copy = allocate(tensor.dtype(), tensor.shape());
  ctx.ops.cast(tensor, copy, ctx.stream);
  return copy;
}

int Frame::find_producer(const Module& producer, int index) const {
  for (size_t i = producers_.size(); i-- > 0;)
    if (producers_[i].module == &producer && producers_[i].index == index) return static_cast<int>(i);
  return -1;
}

const Frame::Slot& Frame::filled(const Module& owner, int slot) const {
  const auto found = slots_.find({&owner, slot});
  if (found == slots_.end())
    fail(Code::invalid_state, owner.kind(), owner.full_name().empty() ? "" : " ", owner.full_name(),
         ": slot ", slot, " of the frame is empty; forward did not run in it");
  return found->second;
}

void Frame::prepare(Context& ctx, const Module& owner, int slot) {
  const int producer = filled(owner, slot).producer;
  if (producer >= 0 && producers_[static_cast<size_t>(producer)].when == RecomputeWhen::when_loaded)
    load(ctx, owner, slot);
}

bool Frame::needs_recompute(const Module& producer, int index) const {
  const int found = find_producer(producer, index);
  if (found < 0) return false;
  const Producer& entry = producers_[static_cast<size_t>(found)];
  return entry.saved && !entry.again;
}

void Frame::set_recomputed(const Module& producer, int index, const Tensor& tensor) {
  const int found = find_producer(producer, index);
  GW_CHECK(found, >=, 0);
  Producer& entry = producers_[static_cast<size_t>(found)];
  entry.again = tensor;
  entry.made_at = gradients_.mark().total;
}

Tensor Frame::load(Context& ctx, const Module& owner, int slot) {
  const Slot& place = filled(owner, slot);
  if (place.producer < 0) return place.tensor;
  const auto at = static_cast<size_t>(place.producer);
  if (!producers_[at].again) {
    const size_t made_at = gradients_.mark().total;
    Tensor again = producers_[at].module->recompute(ctx, *this, producers_[at].index);
    producers_[at].again = again;
    producers_[at].made_at = made_at;
  }
  return producers_[at].again.reshape(place.shape);
}

// Releasing `more` is safe although weight tasks may be pending. A task refers to memory allocated since
// `before` only if one module's input gradient went to another module as its dy. Then there are at least two
// allocations since `before`, and nothing is released.
void Frame::add_gradient(Context& ctx, const Tensor& dx, const Tensor& more, const Stack::Mark& before) {
  ctx.ops.add(more, 1, dx, ctx.stream);
  if (gradients_.only(before, more)) gradients_.release(before);
}

size_t Frame::pending_weight() const {
  size_t tasks = pending_weight_.size();
  for (size_t i = 0; i < nested_used_; ++i) tasks += nested_[i]->pending_weight();
  return tasks;
}

size_t Frame::run_weight_gradients(Context& ctx, size_t most) {
  size_t ran = 0;
  for (; ran < most && !pending_weight_.empty(); ++ran) {
    const WeightTask task = pending_weight_.front();
    pending_weight_.pop_front();  // before it runs, so that a task that throws does not run again
    if (task.part != nullptr) task.part->enter(ctx.stream);
    const TraceSpan span = task.module->span(ctx, "weight gradient");
    task.module->backward_weight(ctx, *this, task.index, task.dy);
  }
  for (size_t i = 0; i < nested_used_ && ran < most; ++i)
    ran += nested_[i]->run_weight_gradients(ctx, most - ran);
  return ran;
}

Tensor Frame::compact(Context& ctx, const Stack::Mark& mark, const Tensor& dx) {
  if (ctx.defer_weight) return dx;
  run_weight_gradients(ctx);
  for (Producer& producer : producers_)
    if (producer.again && producer.made_at >= mark.total) producer.again = Tensor();
  Tensor down = gangway::compact(gradients_, mark, dx, ctx.stream);
  reset_nested();  // after dx was moved, because dx may lie in a nested frame
  return down;
}

void Frame::set_user_state(const Module& owner, UserState state) {
  if (user_states_.contains(&owner)) {
    if (state.release != nullptr) state.release(state.state, state.context);
    fail(Code::invalid_state, owner.kind(),
         ": its state is in the frame already; a module runs once in a frame");
  }
  user_states_[&owner] = state;
}

void* Frame::user_state(const Module& owner) const {
  const auto found = user_states_.find(&owner);
  return found == user_states_.end() ? nullptr : found->second.state;
}

void Frame::free_user_state(const Module& owner) {
  const auto found = user_states_.find(&owner);
  if (found == user_states_.end()) return;
  const UserState state = found->second;
  user_states_.erase(found);
  if (state.release != nullptr) state.release(state.state, state.context);
}

std::shared_ptr<SavedPart> Frame::part_of(const Module& owner) const {
  for (const auto& [module, part] : parts_)
    if (module == &owner) return part;
  return nullptr;
}

void Frame::drop_part(const Module& owner) {
  std::erase_if(parts_, [&](const auto& part) { return part.first == &owner; });
}

Frame& Frame::nest() {
  if (nested_used_ == nested_.size()) nested_.push_back(std::make_unique<Frame>(memory_));
  Frame& frame = *nested_[nested_used_++];
  frame.id = id;
  frame.recompute = recompute;
  frame.backward_part_ = backward_part_;  // the part holds the values that are recomputed from
  return frame;
}

size_t Frame::activation_bytes() const {
  size_t bytes = activations_.high_water_bytes();
  for (const auto& nested : nested_) bytes += nested->activation_bytes();
  return bytes;
}

size_t Frame::gradient_bytes() const {
  size_t bytes = gradients_.high_water_bytes();
  for (const auto& nested : nested_) bytes += nested->gradient_bytes();
  return bytes;
}

void Frame::reset_nested() {
  for (size_t i = 0; i < nested_used_; ++i) nested_[i]->reset();
  nested_used_ = 0;
}

void Frame::reset() {
  while (!user_states_.empty()) free_user_state(*user_states_.begin()->first);
  pending_weight_.clear();
  slots_.clear();
  seen_.clear();
  producers_.clear();
  producer_of_.clear();
  reset_nested();
  parts_.clear();
  saving_ = backward_part_ = nullptr;
  activations_.reset();
  gradients_.reset();
}

}  // namespace gangway
