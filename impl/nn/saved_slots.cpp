#include "nn/saved_slots.h"

#include <algorithm>

#include "nn/module.h"

namespace gangway {
namespace {

// Returns the byte behind the last element; rows may have gaps.
size_t end_of(const Tensor& t) {
  if (t.count() == 0) return t.byte_offset();
  int64_t last = 0;
  for (int i = 0; i < t.rank(); ++i) last += (t.dim(i) - 1) * t.stride(i);
  return t.byte_offset() + static_cast<size_t>(last + 1) * item_bytes(t.dtype());
}

}  // namespace

int SavedSlots::find_producer(const Tensor& tensor) const {
  if (tensor.count() == 0) return -1;  // an empty tensor has the address of the next allocation
  const auto found = producer_of_.find({tensor.buffer().get(), tensor.byte_offset()});
  if (found == producer_of_.end()) return -1;
  return producers_[static_cast<size_t>(found->second)].place.lock() == tensor.buffer() ? found->second : -1;
}

int SavedSlots::find_producer(const Module& producer, int index) const {
  for (size_t i = producers_.size(); i-- > 0;)
    if (producers_[i].module == &producer && producers_[i].index == index) return static_cast<int>(i);
  return -1;
}

void SavedSlots::save(const Module& owner, int slot, const Tensor& tensor) {
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

void SavedSlots::recomputable(const Tensor& tensor, Module& producer, int index, RecomputeWhen when) {
  producer_of_[{tensor.buffer().get(), tensor.byte_offset()}] = static_cast<int>(producers_.size());
  Producer& entry = producers_.emplace_back();
  entry.module = &producer;
  entry.index = index;
  entry.when = when;
  entry.place = tensor.buffer();
}

Tensor SavedSlots::kept(Context& ctx, const Tensor& tensor) {
  if (!tensor || find_producer(tensor) < 0) return tensor;
  const Tensor copy = frame_.allocate(tensor.dtype(), tensor.shape());
  ctx.ops.cast(tensor, copy, ctx.stream);
  return copy;
}

const SavedSlots::Slot& SavedSlots::filled(const Module& owner, int slot) const {
  const auto found = slots_.find({&owner, slot});
  if (found == slots_.end())
    fail(Code::invalid_state, owner.kind(), owner.full_name().empty() ? "" : " ", owner.full_name(),
         ": slot ", slot, " of the frame is empty; forward did not run in it");
  return found->second;
}

Tensor SavedSlots::load(Context& ctx, const Module& owner, int slot) {
  const Slot& place = filled(owner, slot);
  if (place.producer < 0) return place.tensor;
  const auto at = static_cast<size_t>(place.producer);
  if (!producers_[at].again) {
    const size_t made_at = frame_.mark().total;
    Tensor again = producers_[at].module->recompute(ctx, frame_, producers_[at].index);
    producers_[at].again = again;
    producers_[at].made_at = made_at;
  }
  return producers_[at].again.reshape(place.shape);
}

bool SavedSlots::keeps(const Tensor& tensor) const {
  const size_t first = tensor.byte_offset(), last = end_of(tensor);
  return std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
    const Tensor& kept = slot.second.tensor;
    return kept && kept.buffer() == tensor.buffer() && kept.byte_offset() < last && end_of(kept) > first;
  });
}

void SavedSlots::prepare(Context& ctx, const Module& owner, int slot) {
  const int producer = filled(owner, slot).producer;
  if (producer >= 0 && producers_[static_cast<size_t>(producer)].when == RecomputeWhen::when_loaded)
    load(ctx, owner, slot);
}

bool SavedSlots::needs_recompute(const Module& producer, int index) const {
  const int found = find_producer(producer, index);
  if (found < 0) return false;
  const Producer& entry = producers_[static_cast<size_t>(found)];
  return entry.saved && !entry.again;
}

void SavedSlots::set_recomputed(const Module& producer, int index, const Tensor& tensor) {
  const int found = find_producer(producer, index);
  GW_CHECK(found, >=, 0);
  Producer& entry = producers_[static_cast<size_t>(found)];
  entry.again = tensor;
  entry.made_at = frame_.mark().total;
}

void SavedSlots::drop_recomputed(const Stack::Mark& mark) {
  for (Producer& producer : producers_)
    if (producer.again && producer.made_at >= mark.total) producer.again = Tensor();
}

void SavedSlots::clear() {
  slots_.clear();
  producers_.clear();
  producer_of_.clear();
}

}  // namespace gangway
