#include "gang/host/op.h"

#include "gang/host/algorithm.h"

namespace gangway::host {
namespace {

uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdull;
  return h ^ h >> 32;
}

void set_peers(Op& op, Flow flow, int rank) {
  const bool root = op.c.peer == rank;
  op.from = op.to = Peers::none;
  switch (flow) {
    case Flow::everyone: op.from = op.to = Peers::all; return;
    case Flow::to_root: root ? op.from = Peers::all : op.to = Peers::root; return;
    case Flow::from_root: root ? op.to = Peers::all : op.from = Peers::root; return;
    case Flow::to_peer: op.to = Peers::root; return;
    case Flow::from_peer: op.from = Peers::root; return;
  }
}

}  // namespace

Part part_of(const Op& op, int j) {
  const auto i = static_cast<size_t>(j);
  if (op.counts.empty()) return {i * op.c.count, op.c.count};
  Part part{0, op.counts[i]};
  for (size_t k = 0; k < i; ++k) part.first += op.counts[k];
  return part;
}

Part received_part(const Op& op, int j, int size) {
  const auto i = static_cast<size_t>(j);
  if (op.counts.empty()) return {i * op.c.count, op.c.count};
  const size_t* const got = op.counts.data() + size;
  Part part{0, got[i]};
  for (size_t k = 0; k < i; ++k) part.first += got[k];
  return part;
}

Part even_part(size_t count, size_t item, int j, int size) {
  const size_t unit = std::max<size_t>(1, kLine / item);
  const size_t units = (count + unit - 1) / unit;
  const auto edge = [&](int k) {
    return std::min(count, units * static_cast<size_t>(k) / static_cast<size_t>(size) * unit);
  };
  return {edge(j), edge(j + 1) - edge(j)};
}

void prepare(Op& op, Lane& lane, const Collective& c, int rank, int size) {
  op.c = c;
  op.lane = &lane;
  op.channel = lane.channel;
  op.algorithm = &algorithm_of(c.op);
  op.item = item_bytes(c.dtype);
  if (c.counts != nullptr) {
    const auto n = static_cast<size_t>(size) * (c.op == CollectiveOp::all_to_all ? 2 : 1);
    op.counts.assign(c.counts, c.counts + n);
    op.c.counts = op.counts.data();
  }
  op.in_bytes = in_count(op.c, rank, size) * op.item;
  set_peers(op, op.in_bytes <= kInline ? op.algorithm->flow_of_inlined : op.algorithm->flow, rank);
}

// The sequence is not in it: it chose the slot, and the slot's own number says so.
uint64_t fingerprint(const Op& op, uint64_t history, int size) {
  static_assert(kMaxRanks < 0xffff);
  const uint64_t root = facts(op.c.op).has_root ? static_cast<uint64_t>(op.c.peer) + 1 : 0;
  const CollectiveOp kind = op.c.op == CollectiveOp::recv ? CollectiveOp::send : op.c.op;  // two ends of one
  const uint64_t what = static_cast<uint64_t>(kind) | static_cast<uint64_t>(op.c.reduce) << 8 | root << 16 |
                        static_cast<uint64_t>(static_cast<uint32_t>(op.c.dtype)) << 32;
  uint64_t h = mix(history, what);
  if (op.counts.empty()) {
    h = mix(h, op.c.count);
  } else if (op.c.op != CollectiveOp::all_to_all) {  // there each pair compares its own count
    for (int j = 0; j < size; ++j) h = mix(h, op.counts[static_cast<size_t>(j)]);
  }
  return h;
}

}  // namespace gangway::host
