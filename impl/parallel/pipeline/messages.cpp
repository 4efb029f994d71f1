#include "parallel/pipeline/messages.h"

#include <algorithm>

namespace gangway {
namespace {

Channel channel_of(Direction direction) {
  return direction == Direction::forward ? Channel::pp_next : Channel::pp_previous;
}

// In the gang of a pair the sender is rank 0 and the receiver rank 1.
Collective record(CollectiveOp op, void* data, size_t count, DType dtype) {
  Collective c;
  c.op = op;
  if (op == CollectiveOp::send)
    c.in = data;
  else
    c.out = data;
  c.count = count;
  c.dtype = dtype;
  c.peer = op == CollectiveOp::send ? 1 : 0;
  c.async_input = true;
  return c;
}

}  // namespace

// --- the pool: it gives the smallest free memory that is large enough, or new memory

Tensor MessagePool::allocate(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.count()) * item_bytes(dtype);
  Block* best = nullptr;
  for (Block& block : blocks_)
    if (!block.taken && block.buffer->bytes() >= bytes &&
        (best == nullptr || block.buffer->bytes() < best->buffer->bytes()))
      best = &block;
  if (best == nullptr) best = &blocks_.emplace_back(Block{Buffer::allocate(from_, bytes)});
  if (best->lent && is_shared(best->buffer)) best->buffer = Buffer::allocate(from_, best->buffer->bytes());
  best->taken = true;
  best->lent = false;
  return Tensor(best->buffer, 0, dtype, shape);
}

Tensor MessagePool::copy_of(const Tensor& tensor, Ops& ops, Stream& stream) {
  const Tensor copy = allocate(tensor.dtype(), tensor.shape());
  if (tensor.count() == 0 || tensor.raw() == nullptr) return copy;
  if (tensor.contiguous())
    ops.device().copy(copy.raw(), tensor.raw(), tensor.bytes(), stream);
  else
    ops.cast(tensor, copy, stream);
  return copy;
}

MessagePool::Block* MessagePool::block_of(const Tensor& tensor) {
  for (Block& block : blocks_)
    if (tensor && block.buffer == tensor.buffer()) return &block;
  return nullptr;
}

void MessagePool::release(const Tensor& tensor) {
  if (Block* block = block_of(tensor)) block->taken = false;
}

void MessagePool::lend(const Tensor& tensor) {
  if (Block* block = block_of(tensor)) block->lent = true;
}

size_t MessagePool::bytes() const {
  size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.buffer->bytes();
  return bytes;
}

// --- headers

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

struct Messages::Receive {
  Direction direction;
  int peer;
  std::unique_ptr<MessageHeader> header;  // null: the shapes were known
  WorkPtr header_work, work;
  Values tensors;
  bool arrived = false;
};

Messages::Messages(GangPtr gang, Ops& ops, const std::vector<int>& stage_rank)
    : gang_(std::move(gang)), ops_(ops), all_{gang_}, pool_(gang_->allocator()) {
  std::vector<std::pair<int, int>> made;
  for (size_t s = 0; s + 1 < stage_rank.size(); ++s)
    for (const auto& ends :
         {std::pair(stage_rank[s], stage_rank[s + 1]), std::pair(stage_rank[s + 1], stage_rank[s])}) {
      if (ends.first == ends.second || std::find(made.begin(), made.end(), ends) != made.end()) continue;
      made.push_back(ends);
      const int ranks[] = {ends.first, ends.second};
      if (GangPtr pair = gang_->create_gang(ranks, text(gang_->name(), ".", ends.first, "to", ends.second))) {
        for (const Direction direction : {Direction::forward, Direction::backward})
          pair->open(channel_of(direction));
        pairs_[ends] = pair;
        all_.push_back(std::move(pair));
      }
    }
}

Gang& Messages::pair(CollectiveOp op, int peer) const {
  return *pairs_.at(op == CollectiveOp::send ? std::pair(gang_->rank(), peer)
                                             : std::pair(peer, gang_->rank()));
}

void Messages::abort(const Error& error) noexcept {
  for (const GangPtr& gang : all_) gang->abort(error);
}

Messages::~Messages() {
  for (const Sent& sent : sent_) {
    keep(sent.work, sent.tensors);
    if (sent.header != nullptr) keep(sent.header_work, sent.header);
  }
  for (const ReceivePtr& incoming : awaiting_header_) keep(incoming->header_work, incoming);
  for (const std::weak_ptr<Receive>& weak : started_)
    if (const ReceivePtr incoming = weak.lock(); incoming != nullptr && !incoming->arrived)
      keep(incoming->work, incoming->tensors);
}

void Messages::keep(const WorkPtr& work, const Values& tensors) noexcept {
  for (const Tensor& tensor : tensors) keep(work, tensor.buffer());
}
void Messages::keep(const WorkPtr& work, std::shared_ptr<void> object) noexcept {
  gang_->owner()->works()->keep(work, std::move(object));
}

WorkPtr Messages::start(Direction direction, CollectiveOp op, int peer, const Values& tensors,
                        Stream& stream) {
  std::vector<Collective> records;
  for (const Tensor& t : tensors)
    records.push_back(record(op, t.raw(), static_cast<size_t>(t.count()), t.dtype()));
  return pair(op, peer).run(channel_of(direction), records, &stream);
}

WorkPtr Messages::start(CollectiveOp op, int peer, MessageHeader& header) {
  return pair(op, peer).run(Channel::control, record(op, &header, sizeof header, DType::u8));
}

void Messages::send(Direction direction, int peer, Values tensors, bool with_header, Stream& stream) {
  reclaim();
  Sent sent;
  if (with_header) {
    sent.header = std::make_shared<MessageHeader>(MessageHeader::of(specs_of(tensors)));
    sent.header_work = start(CollectiveOp::send, peer, *sent.header);
  }
  sent.work = start(direction, CollectiveOp::send, peer, tensors, stream);
  sent.tensors = std::move(tensors);
  sent_.push_back(std::move(sent));
}

Messages::ReceivePtr Messages::receive(Direction direction, int peer, const Specs* known, Stream& stream) {
  auto incoming = std::make_shared<Receive>(Receive{direction, peer, nullptr, nullptr, nullptr, {}});
  if (known == nullptr) {
    incoming->header = std::make_unique<MessageHeader>();
    incoming->header_work = start(CollectiveOp::recv, peer, *incoming->header);
    awaiting_header_.push_back(incoming);
    return incoming;
  }
  // Earlier messages may still wait for their headers; their tensors come first.
  start_receives_up_to(nullptr, direction, peer, stream);
  for (const Spec& spec : *known) incoming->tensors.push_back(pool_.allocate(spec.dtype, spec.shape));
  incoming->work = start(direction, CollectiveOp::recv, peer, incoming->tensors, stream);
  std::erase_if(started_, [](const auto& weak) { return weak.expired(); });
  started_.push_back(incoming);
  return incoming;
}

// Starts the receives of the tensors of this peer and direction whose headers are still awaited, in the order
// of receive(), up to `last` (null: all). It waits for each header. It leaves out other peers, because they
// may not have sent theirs.
void Messages::start_receives_up_to(const Receive* last, Direction direction, int peer, Stream& stream) {
  for (auto at = awaiting_header_.begin(); at != awaiting_header_.end();) {
    const ReceivePtr incoming = *at;
    if (incoming->direction != direction || incoming->peer != peer) {
      ++at;
      continue;
    }
    incoming->header_work->wait(Deadline::never());
    for (const Spec& spec : incoming->header->specs())
      incoming->tensors.push_back(pool_.allocate(spec.dtype, spec.shape));
    incoming->work = start(direction, CollectiveOp::recv, peer, incoming->tensors, stream);
    std::erase_if(started_, [](const auto& weak) { return weak.expired(); });
    started_.push_back(incoming);
    at = awaiting_header_.erase(at);
    if (incoming.get() == last) return;
  }
}

const Values& Messages::wait(const ReceivePtr& incoming, Stream& stream) {
  if (incoming->arrived) return incoming->tensors;
  if (incoming->work == nullptr)
    start_receives_up_to(incoming.get(), incoming->direction, incoming->peer, stream);
  // The caller may next wait for the device, and then nothing would drive the headers that this rank still
  // sends and that peers wait for. So the host waits here, where it drives them.
  if (gang_->engine().facts().moves_device_memory) incoming->work->wait(Deadline::never());
  incoming->work->order(stream);
  incoming->arrived = true;
  return incoming->tensors;
}

void Messages::release(const ReceivePtr& incoming) {
  for (const Tensor& tensor : incoming->tensors) pool_.release(tensor);
  incoming->tensors.clear();
}

void Messages::reclaim() {
  while (!sent_.empty() && sent_.front().work->poll_input() &&
         (sent_.front().header_work == nullptr || sent_.front().header_work->poll_input())) {
    for (const Tensor& tensor : sent_.front().tensors) pool_.release(tensor);
    sent_.pop_front();
  }
}

void Messages::finish(Stream& stream) {
  for (const Sent& sent : sent_) {
    sent.work->order(stream);
    sent.work->order_input(stream);
    if (sent.header_work != nullptr) sent.header_work->wait_input(Deadline::never());
    for (const Tensor& tensor : sent.tensors) pool_.release(tensor);
  }
  sent_.clear();
}

}  // namespace gangway
