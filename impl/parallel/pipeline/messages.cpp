#include "parallel/pipeline/messages.h"

#include <algorithm>

namespace gangway {
namespace {

Channel channel_of(Way way) { return way == Way::forward ? Channel::pp_next : Channel::pp_previous; }

Collective record(CollectiveOp op, void* data, size_t count, DType dtype, int peer) {
  Collective c;
  c.op = op;
  if (op == CollectiveOp::send)
    c.in = data;
  else
    c.out = data;
  c.count = count;
  c.dtype = dtype;
  c.peer = peer;
  c.async_input = true;
  return c;
}

}  // namespace

// --- the pool: the smallest room that is large enough, else a new one

Tensor MessagePool::take(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.count()) * item_bytes(dtype);
  Room* best = nullptr;
  for (Room& room : rooms_)
    if (!room.taken && room.buffer->bytes() >= bytes &&
        (best == nullptr || room.buffer->bytes() < best->buffer->bytes()))
      best = &room;
  if (best == nullptr) best = &rooms_.emplace_back(Room{Buffer::allocate(from_, bytes)});
  best->taken = true;
  return Tensor(best->buffer, 0, dtype, shape);
}

Tensor MessagePool::copy_of(const Tensor& tensor, Ops& ops, Stream& stream) {
  const Tensor copy = take(tensor.dtype(), tensor.shape());
  if (tensor.count() == 0 || tensor.raw() == nullptr) return copy;
  if (tensor.contiguous())
    ops.device().copy(copy.raw(), tensor.raw(), tensor.bytes(), stream);
  else
    ops.cast(tensor, copy, stream);
  return copy;
}

void MessagePool::give(const Tensor& tensor) {
  for (Room& room : rooms_)
    if (tensor && room.buffer == tensor.buffer()) room.taken = false;
}

size_t MessagePool::bytes() const {
  size_t bytes = 0;
  for (const Room& room : rooms_) bytes += room.buffer->bytes();
  return bytes;
}

// --- dims

MessageHeader MessageHeader::of(const Specs& specs) {
  if (specs.size() > kMostTensors)
    fail(Code::invalid_argument, "pipeline: ", specs.size(), " tensors between two stages; the most is ",
         kMostTensors);
  MessageHeader header;
  header.count = static_cast<int64_t>(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    Entry& entry = header.entries[i];
    entry.dtype = static_cast<int64_t>(specs[i].dtype);
    entry.rank = specs[i].shape.rank();
    for (int d = 0; d < specs[i].shape.rank(); ++d) entry.dims[static_cast<size_t>(d)] = specs[i].shape[d];
  }
  return header;
}

Specs MessageHeader::specs() const {
  GW_CHECK(count, >=, 0);
  GW_CHECK(static_cast<size_t>(count), <=, kMostTensors);
  Specs specs;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const Entry& entry = entries[i];
    GW_CHECK(entry.rank, >=, 0);
    GW_CHECK(entry.rank, <=, kMaxDims);
    specs.push_back({static_cast<DType>(entry.dtype),
                     Shape(std::span(entry.dims.data(), static_cast<size_t>(entry.rank)))});
  }
  return specs;
}

// --- messages

struct Messages::Arrival {
  Way way;
  int peer;
  std::unique_ptr<MessageHeader> header;  // null: the dims were known
  WorkPtr header_work, work;
  Values tensors;
  bool arrived = false;
};

Messages::Messages(GangPtr gang, Ops& ops) : gang_(std::move(gang)), ops_(ops), pool_(gang_->allocator()) {}

Messages::~Messages() {
  for (const Sent& sent : sent_) {
    keep(sent.work, sent.tensors);
    if (sent.header != nullptr) keep(sent.header_work, sent.header);
  }
  for (const ArrivalPtr& arrival : unasked_) keep(arrival->header_work, arrival);
  for (const std::weak_ptr<Arrival>& weak : asked_)
    if (const ArrivalPtr arrival = weak.lock(); arrival != nullptr && !arrival->arrived)
      keep(arrival->work, arrival->tensors);
}

void Messages::keep(const WorkPtr& work, const Values& tensors) noexcept {
  for (const Tensor& tensor : tensors) keep(work, tensor.buffer());
}
void Messages::keep(const WorkPtr& work, std::shared_ptr<void> object) noexcept {
  gang_->owner()->works()->keep(work, std::move(object));
}

WorkPtr Messages::start(Way way, CollectiveOp op, int peer, const Values& tensors, Stream& stream) {
  std::vector<Collective> records;
  for (const Tensor& t : tensors)
    records.push_back(record(op, t.raw(), static_cast<size_t>(t.count()), t.dtype(), peer));
  return gang_->run(channel_of(way), records, &stream);
}

WorkPtr Messages::start(CollectiveOp op, int peer, MessageHeader& header) {
  return gang_->run(Channel::control, record(op, &header, sizeof header, DType::u8, peer));
}

void Messages::send(Way way, int peer, Values tensors, bool with_dims, Stream& stream) {
  reclaim();
  Sent sent;
  if (with_dims) {
    sent.header = std::make_shared<MessageHeader>(MessageHeader::of(specs_of(tensors)));
    sent.header_work = start(CollectiveOp::send, peer, *sent.header);
  }
  sent.work = start(way, CollectiveOp::send, peer, tensors, stream);
  sent.tensors = std::move(tensors);
  sent_.push_back(std::move(sent));
}

Messages::ArrivalPtr Messages::receive(Way way, int peer, const Specs* known, Stream& stream) {
  auto arrival = std::make_shared<Arrival>(Arrival{way, peer, nullptr, nullptr, nullptr, {}});
  if (known == nullptr) {
    arrival->header = std::make_unique<MessageHeader>();
    arrival->header_work = start(CollectiveOp::recv, peer, *arrival->header);
    unasked_.push_back(arrival);
    return arrival;
  }
  // Behind those of this pair whose dims are still under way.
  while (std::any_of(unasked_.begin(), unasked_.end(),
                     [&](const ArrivalPtr& a) { return a->way == way && a->peer == peer; }))
    ask(*unasked_.front(), stream);
  for (const Spec& spec : *known) arrival->tensors.push_back(pool_.take(spec.dtype, spec.shape));
  arrival->work = start(way, CollectiveOp::recv, peer, arrival->tensors, stream);
  std::erase_if(asked_, [](const auto& weak) { return weak.expired(); });
  asked_.push_back(arrival);
  return arrival;
}

// The oldest whose dims are awaited: its tensors are received now.
void Messages::ask(Arrival& arrival, Stream& stream) {
  arrival.header_work->wait(Deadline::never());
  for (const Spec& spec : arrival.header->specs())
    arrival.tensors.push_back(pool_.take(spec.dtype, spec.shape));
  arrival.work = start(arrival.way, CollectiveOp::recv, arrival.peer, arrival.tensors, stream);
  std::erase_if(asked_, [](const auto& weak) { return weak.expired(); });
  asked_.push_back(unasked_.front());
  unasked_.pop_front();
}

const Values& Messages::arrive(const ArrivalPtr& arrival, Stream& stream) {
  if (arrival->arrived) return arrival->tensors;
  // In the order of receive(): it is the program's, whatever has come meanwhile.
  while (arrival->work == nullptr) ask(*unasked_.front(), stream);
  arrival->work->order(stream);
  arrival->arrived = true;
  return arrival->tensors;
}

void Messages::release(const ArrivalPtr& arrival) {
  for (const Tensor& tensor : arrival->tensors) pool_.give(tensor);
  arrival->tensors.clear();
}

void Messages::reclaim() {
  while (!sent_.empty() && sent_.front().work->poll_input() &&
         (sent_.front().header_work == nullptr || sent_.front().header_work->poll_input())) {
    for (const Tensor& tensor : sent_.front().tensors) pool_.give(tensor);
    sent_.pop_front();
  }
}

void Messages::finish(Stream& stream) {
  for (const Sent& sent : sent_) {
    sent.work->order(stream);
    sent.work->order_input(stream);
    if (sent.header_work != nullptr) sent.header_work->wait_input(Deadline::never());
    for (const Tensor& tensor : sent.tensors) pool_.give(tensor);
  }
  sent_.clear();
}

}  // namespace gangway
