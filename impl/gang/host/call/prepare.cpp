#include "gang/host/call/prepare.h"

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

void prepare(Op& op, Lane& lane, const Algorithm& algorithm, const Collective& c, int rank, int size) {
  op.c = c;
  op.lane = &lane;
  op.channel = lane.channel;
  op.algorithm = &algorithm;
  op.item = item_bytes(c.dtype);
  if (c.counts != nullptr) {
    const auto n = static_cast<size_t>(size) * (c.op == CollectiveOp::all_to_all ? 2 : 1);
    op.counts.assign(c.counts, c.counts + n);
    op.c.counts = op.counts.data();
  }
  op.in_bytes = in_count(op.c, rank, size) * op.item;
  set_peers(op, op.in_bytes <= kInline ? op.algorithm->flow_of_inlined : op.algorithm->flow, rank);
}

// The sequence number is not part of the hash, because it selects the slot, and the slot stores it anyway.
uint64_t fingerprint(const Op& op, uint64_t history, int size) {
  static_assert(kMaxRanks < 0xffff);
  const uint64_t root = facts(op.c.op).has_root ? static_cast<uint64_t>(op.c.peer) + 1 : 0;
  // A send and its receive must have the same hash.
  const CollectiveOp kind = op.c.op == CollectiveOp::recv ? CollectiveOp::send : op.c.op;
  const uint64_t what = static_cast<uint64_t>(kind) | static_cast<uint64_t>(op.c.reduce) << 8 | root << 16 |
                        static_cast<uint64_t>(static_cast<uint32_t>(op.c.dtype)) << 32;
  uint64_t h = mix(history, what);
  if (op.counts.empty()) {
    h = mix(h, op.c.count);
    // For all_to_all each pair of ranks compares its own count.
  } else if (op.c.op != CollectiveOp::all_to_all) {
    for (int j = 0; j < size; ++j) h = mix(h, op.counts[static_cast<size_t>(j)]);
  }
  return h;
}

}  // namespace gangway::host
