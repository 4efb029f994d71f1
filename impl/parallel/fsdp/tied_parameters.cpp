#include "parallel/fsdp/tied_parameters.h"

#include <utility>

namespace gangway {

TiedParameters::TiedParameters(Ops& ops, GangPtr pp, std::vector<TiedParameter> tied)
    : ops_(ops), pp_(std::move(pp)), tied_(std::move(tied)) {
  for (const TiedParameter& t : tied_) {
    const bool receives = owns(t) && t.original->shard_grad != nullptr;
    const Tensor like = receives ? t.original->shard_grad->tensor : Tensor();
    rooms_.push_back(receives ? Tensor::allocate(pp_->allocator(), like.dtype(), like.shape()) : Tensor());
  }
}

void TiedParameters::begin() {
  for (const TiedParameter& t : tied_)
    if (t.copy != nullptr) t.copy->trainable = t.original->trainable;
  begun_ = true;
}

// Adds in the order of the stages, so that the sums have the same bits in every run.
void TiedParameters::add_gradients(Stream& stream) {
  if (!std::exchange(begun_, false)) return;
  std::vector<WorkPtr> sends;
  for (size_t i = 0; i < tied_.size(); ++i) {
    const TiedParameter& t = tied_[i];
    if (!t.original->trainable) continue;
    if (t.copy != nullptr) {
      Accumulator& gradient = *t.copy->shard_grad;
      const Collective send =
          record(CollectiveOp::send, to_send(gradient.zero_if_unwritten(ops_, stream), stream), t.ranks[0]);
      sends.push_back(pp_->run(Channel::pp_previous, send, &stream));
      gradient.written = false;
    }
    for (size_t r = 1; owns(t) && r < t.ranks.size(); ++r) {
      wait({pp_->run(Channel::pp_previous, record(CollectiveOp::recv, rooms_[i], t.ranks[r]), &stream)},
           stream);
      t.original->shard_grad->add(ops_, rooms_[i], stream);
    }
  }
  wait(sends, stream);
  sent_.clear();
}

// Returns `tensor`, or an uninitialised device tensor like it if it is offloaded, because peers cannot read
// pinned memory of this rank.
Tensor TiedParameters::on_device(const Tensor& tensor) const {
  const bool rests = tensor.buffer()->kind() == MemoryKind::pinned;
  return rests ? Tensor::allocate(pp_->allocator(), tensor.dtype(), tensor.shape()) : tensor;
}

Tensor TiedParameters::to_send(const Tensor& tensor, Stream& stream) {
  Tensor out = on_device(tensor);
  if (out.buffer() == tensor.buffer()) return out;
  if (out.count() != 0) ops_.cast(tensor, out, stream);
  sent_.push_back(out);
  return out;
}

void TiedParameters::send_values(Stream& stream) {
  if (!std::exchange(opened_, true))
    for (const Channel channel : {Channel::pp_next, Channel::pp_previous}) pp_->open(channel);
  std::vector<WorkPtr> works;
  std::vector<Tensor> received;  // one for each tied parameter; absent if this rank receives none
  for (const TiedParameter& t : tied_) {
    received.push_back(t.copy == nullptr ? Tensor() : on_device(t.copy->shard));
    if (t.copy != nullptr)
      works.push_back(
          pp_->run(Channel::pp_next, record(CollectiveOp::recv, received.back(), t.ranks[0]), &stream));
    for (size_t r = 1; owns(t) && r < t.ranks.size(); ++r)
      works.push_back(pp_->run(Channel::pp_next,
                               record(CollectiveOp::send, to_send(t.original->shard, stream), t.ranks[r]),
                               &stream));
  }
  wait(works, stream);
  sent_.clear();
  for (size_t i = 0; i < tied_.size(); ++i)
    if (received[i] && received[i].buffer() != tied_[i].copy->shard.buffer() && received[i].count() != 0)
      ops_.cast(received[i], tied_[i].copy->shard, stream);
  for (const TiedParameter& t : tied_)
    if (t.copy != nullptr && t.copy->shard_copy && t.copy->shard.count() != 0)
      ops_.cast(t.copy->shard, t.copy->shard_copy, stream);
}

size_t TiedParameters::bytes() const {
  size_t bytes = 0;
  for (const Tensor& room : rooms_)
    if (room) bytes += room.bytes();
  return bytes;
}

Collective TiedParameters::record(CollectiveOp op, const Tensor& tensor, int peer) const {
  Collective c;
  c.op = op;
  if (op == CollectiveOp::send)
    c.in = tensor.raw();
  else
    c.out = tensor.raw();
  c.count = static_cast<size_t>(tensor.count());
  c.dtype = tensor.dtype();
  c.peer = peer;
  return c;
}

void TiedParameters::wait(const std::vector<WorkPtr>& works, Stream& stream) const {
  for (const WorkPtr& work : works) {
    work->order(stream);
    work->order_input(stream);
  }
}

}  // namespace gangway
