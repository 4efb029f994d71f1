#include "parallel/activation_offload.h"

#include <algorithm>

#include "nn/chain.h"
#include "parallel/fsdp/wrap.h"

namespace gangway {
namespace {

// A view of bytes, because a buffer of the meta device has no pointer to add an offset to.
Tensor bytes_of(const std::shared_ptr<Buffer>& buffer, size_t offset, size_t bytes) {
  return Tensor(buffer, offset, DType::u8, Shape{static_cast<int64_t>(bytes)});
}

}  // namespace

class ActivationOffload::Piece final : public SavedPart, public std::enable_shared_from_this<Piece> {
 public:
  Piece(std::shared_ptr<ActivationOffload> offload, size_t slot, const PiecePtr& before)
      : offload_(std::move(offload)), slot_(slot), before_(before) {}
  ~Piece() override {
    if (host_ != nullptr) offload_->host_bytes_ -= host_->bytes();
  }

  Tensor allocate(DType dtype, const Shape& shape) override {
    const Tensor tensor = offload_->slots_[slot_].allocate(dtype, shape);
    offload_->holders_[tensor.buffer().get()] = weak_from_this();
    return tensor;
  }
  void enter(Stream& stream) override { offload_->enter(*this, false, stream); }

 private:
  friend class ActivationOffload;
  size_t bytes() const {
    size_t all = 0;
    for (const Stack::Range& range : ranges_) all += range.bytes;
    return all;
  }

  const std::shared_ptr<ActivationOffload> offload_;
  const size_t slot_;
  const std::weak_ptr<Piece> before_;
  std::vector<Stack::Range> ranges_;
  std::shared_ptr<Buffer> host_;  // null until the first copy to the host
  bool is_changed_ = false;       // since its last copy to the host
  bool is_moving_ = false;        // no compute has waited for its last copy yet
};

ActivationOffload::PiecePtr ActivationOffload::begin(const PiecePtr& before, Stream& stream) {
  std::erase_if(holders_, [](const auto& holder) { return holder.second.expired(); });
  side_.before(stream);  // the slot may be overwritten once its contents are on the host
  const PiecePtr last = last_.lock();
  if (last != nullptr) copy_to_host(*last, stream);
  const size_t slot = last == nullptr ? 0 : 1 - last->slot_;
  auto piece = std::make_shared<Piece>(shared_from_this(), slot, before);
  slots_[slot].reset();
  last_ = piece;
  return piece;
}

void ActivationOffload::end(Piece& piece, std::span<const Tensor> outputs, const Frame& frame) {
  piece.ranges_ = slots_[piece.slot_].used();
  piece.is_changed_ = true;
  for (size_t i = outputs.size(); i-- > 0 && !piece.ranges_.empty();) {
    Stack::Range& top = piece.ranges_.back();
    const Tensor& y = outputs[i];
    if (!y || y.count() == 0 || y.buffer() != top.buffer || frame.slots().keeps(y)) continue;
    const bool ends_with = y.byte_offset() < top.bytes && top.bytes < y.byte_offset() + y.bytes() + 64;
    if (ends_with) top.bytes = y.byte_offset();
    if (top.bytes == 0) piece.ranges_.pop_back();
  }
}

void ActivationOffload::enter(Piece& piece, bool modifies, Stream& stream) {
  const PiecePtr self = piece.shared_from_this(), last = last_.lock(), before = piece.before_.lock();
  wait_for(piece, stream);
  if (last != nullptr && last != self) copy_to_host(*last, stream);
  copy_back(self, stream);
  wait_for(piece, stream);
  if (before != nullptr && !share_memory(piece, *before)) copy_back(before, stream);
  if (modifies) piece.is_changed_ = true;
  last_ = self;
}

// Compute must also wait for a copy to the host, because backward may write over the piece. Compute then
// waits for all copies that were started so far, so enter() calls this before it starts others.
void ActivationOffload::wait_for(Piece& piece, Stream& stream) {
  if (!std::exchange(piece.is_moving_, false)) return;
  side_.before(stream);
}

void ActivationOffload::copy_to_host(Piece& piece, Stream& stream) {
  if (!piece.is_changed_) return;
  if (piece.host_ == nullptr) {
    piece.host_ = Buffer::allocate(device_->pinned_allocator(), piece.bytes());
    host_bytes_ += piece.host_->bytes();
    most_host_bytes_ = std::max<size_t>(most_host_bytes_, host_bytes_);
  }
  Stream& side = side_.after(stream);
  size_t at = 0;
  for (const Stack::Range& range : piece.ranges_) {
    device_->copy(bytes_of(piece.host_, at, range.bytes).raw(), bytes_of(range.buffer, 0, range.bytes).raw(),
                  range.bytes, side);
    at += range.bytes;
  }
  bytes_out_ += at;
  piece.is_changed_ = false;
  piece.is_moving_ = true;
}

void ActivationOffload::copy_back(const PiecePtr& piece, Stream& stream) {
  if (is_in_place(*piece)) return;
  for (const Stack::Range& range : piece->ranges_)
    if (const PiecePtr holder = holder_of(*range.buffer); holder != nullptr) copy_to_host(*holder, stream);
  GW_CHECK(piece->host_ != nullptr, ==, true);
  Stream& side = side_.after(stream);
  size_t at = 0;
  for (const Stack::Range& range : piece->ranges_) {
    device_->copy(bytes_of(range.buffer, 0, range.bytes).raw(), bytes_of(piece->host_, at, range.bytes).raw(),
                  range.bytes, side);
    holders_[range.buffer.get()] = piece;
    at += range.bytes;
  }
  bytes_back_ += at;
  piece->is_moving_ = true;
}

ActivationOffload::PiecePtr ActivationOffload::holder_of(const Buffer& buffer) const {
  const auto found = holders_.find(&buffer);
  return found == holders_.end() ? nullptr : found->second.lock();
}

bool ActivationOffload::is_in_place(const Piece& piece) const {
  return std::all_of(piece.ranges_.begin(), piece.ranges_.end(),
                     [&](const Stack::Range& range) { return holder_of(*range.buffer).get() == &piece; });
}

bool ActivationOffload::share_memory(const Piece& a, const Piece& b) const {
  return std::any_of(a.ranges_.begin(), a.ranges_.end(), [&](const Stack::Range& range) {
    return std::any_of(b.ranges_.begin(), b.ranges_.end(),
                       [&](const Stack::Range& other) { return other.buffer == range.buffer; });
  });
}

size_t ActivationOffload::device_bytes() const {
  return slots_[0].high_water_bytes() + slots_[1].high_water_bytes();
}

namespace {

class Offloaded final : public Module {
 public:
  Offloaded(ModulePtr inner, std::shared_ptr<ActivationOffload> offload, bool passes_on)
      : offload_(std::move(offload)), passes_on_(passes_on) {
    add_child("", std::move(inner));
  }

  const char* kind() const override { return "Offload"; }
  bool is_wrapper() const override { return true; }
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    return child(0).check_forward(ctx, inputs);
  }

  // The inputs are copied into the piece: they lie in the slot of the previous block, or in memory that would
  // stay on the device until backward.
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    if (frame == nullptr || ctx.recomputing || frame->parts().saving() != nullptr)
      return child(0).forward(ctx, inputs, frame);
    const auto before = std::dynamic_pointer_cast<ActivationOffload::Piece>(frame->parts().last());
    const ActivationOffload::PiecePtr piece = offload_->begin(before, ctx.stream);
    Values outputs;
    {
      const Saving saving(*frame, *piece);
      outputs = child(0).forward(ctx, copies_of(ctx, inputs, *frame), frame);
    }
    offload_->end(*piece, outputs, *frame);
    frame->parts().add(*this, piece);
    if (!passes_on_) outputs = copies_of(ctx, outputs, *frame);
    return outputs;
  }

  // Weight tasks that are not deferred run here, because they read the piece, which is dropped afterwards.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const auto piece = std::dynamic_pointer_cast<ActivationOffload::Piece>(frame.parts().of(*this));
    if (piece == nullptr) return child(0).backward(ctx, dy, frame);
    offload_->enter(*piece, ctx.defer_weight, ctx.stream);
    const ForBackward part(frame, *piece);
    Values dx = child(0).backward(ctx, dy, frame);
    if (ctx.defer_weight) return dx;
    frame.run_weight_gradients(ctx);
    frame.parts().drop(*this);
    return dx;
  }

 private:
  struct Saving {
    Saving(Frame& frame, SavedPart& part) : frame(frame) { frame.parts().set_saving(&part); }
    ~Saving() { frame.parts().set_saving(nullptr); }
    Saving(const Saving&) = delete;
    Saving& operator=(const Saving&) = delete;
    Frame& frame;
  };
  struct ForBackward {
    ForBackward(Frame& frame, SavedPart& part) : frame(frame) { frame.parts().set_backward(&part); }
    ~ForBackward() { frame.parts().set_backward(nullptr); }
    ForBackward(const ForBackward&) = delete;
    ForBackward& operator=(const ForBackward&) = delete;
    Frame& frame;
  };

  static Values copies_of(Context& ctx, std::span<const Tensor> values, Frame& frame) {
    Values copies;
    for (const Tensor& value : values) {
      copies.push_back(value ? frame.allocate(value.dtype(), value.shape()) : Tensor());
      if (value) ctx.ops.cast(value, copies.back(), ctx.stream);
    }
    return copies;
  }

  const std::shared_ptr<ActivationOffload> offload_;
  const bool passes_on_;
};

}  // namespace

ModulePtr make_offloaded(ModulePtr inner, std::shared_ptr<ActivationOffload> offload, bool passes_on) {
  return std::make_shared<Offloaded>(std::move(inner), std::move(offload), passes_on);
}

void wrap_offloaded(ModulePtr& root, const std::shared_ptr<ActivationOffload>& offload) {
  const std::vector<ModulePlace> blocks = block_places(root);
  const auto is_next = [](const ModulePlace& place, const ModulePlace& other) {
    return other.parent == place.parent && other.index == place.index + 1;
  };
  for (const ModulePlace& place : blocks) {
    const bool passes_on = dynamic_cast<const Chain*>(place.parent) != nullptr &&
                           std::any_of(blocks.begin(), blocks.end(),
                                       [&](const ModulePlace& other) { return is_next(place, other); });
    replace(root, place, make_offloaded(place.module, offload, passes_on));
  }
}

}  // namespace gangway
