#include "gang/host/call/lanes.h"

namespace gangway::host {
namespace {

struct Range {
  uintptr_t first = 0, bytes = 0;
};

bool overlap(Range a, Range b) {
  return a.bytes != 0 && b.bytes != 0 && a.first < b.first + b.bytes && b.first < a.first + a.bytes;
}

Range input(const Op& op) { return {reinterpret_cast<uintptr_t>(op.c.in), op.in_bytes}; }

Range output(const Op& op, int rank, int size) {
  return {reinterpret_cast<uintptr_t>(op.c.out), out_count(op.c, rank, size) * op.item};
}

}  // namespace

Lanes::Lanes(const Team& team) : team_(team) {
  for (int c = 0; c < kChannels; ++c) channels_[static_cast<size_t>(c)].channel = static_cast<Channel>(c);
}

Lane& Lanes::pair_of(Channel channel, const Collective& c) {
  const bool sending = c.op == CollectiveOp::send;
  const auto number = static_cast<size_t>(channel), size = static_cast<size_t>(team_.size());
  if (pairs_.empty()) pairs_.resize(static_cast<size_t>(kChannels) * size * 2);
  auto& lane = pairs_[(number * size + static_cast<size_t>(c.peer)) * 2 + (sending ? 1 : 0)];
  if (lane == nullptr) {
    const int from = sending ? team_.rank() : c.peer, to = sending ? c.peer : team_.rank();
    lane = std::make_unique<Lane>();
    lane->channel = channel;
    lane->peer = c.peer;
    lane->line = &team_.board().pair(channel, from, to);
    lane->sending = sending;
  }
  return *lane;
}

void Lanes::drop_empty() {
  std::erase_if(active_, [](Lane* lane) {
    lane->active = lane->head != nullptr;
    return !lane->active;
  });
}

const Op* Lanes::holder(const Op& op) const {
  if (op.published || op.lane->pair()) return nullptr;  // the steps of a pair keep the order themselves
  const Range in = input(op), out = output(op, team_.rank(), team_.size());
  for (const Op* before = op.lane->head; before != nullptr && before != &op; before = before->next) {
    // Even if the call is done on this rank, peers may still read its input, or fold into its output.
    const Range written = output(*before, team_.rank(), team_.size());
    const bool writing = !before->done || before->in_place_on_peers;
    if (overlap(input(*before), out) || (writing && (overlap(written, in) || overlap(written, out))))
      return before;
  }
  return nullptr;
}

}  // namespace gangway::host
