#include "gang/host/calls.h"

#include <algorithm>

#include "base/error.h"

namespace gangway::host {
namespace {

uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdull;
  return h ^ h >> 32;
}

}  // namespace

Peers producers(const Op& op, int rank, bool small) {
  switch (op.c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::all_reduce:
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all: return Peers::all;
    case CollectiveOp::reduce: return small && op.c.peer != rank ? Peers::none : Peers::all;
    case CollectiveOp::gather: return op.c.peer == rank ? Peers::all : Peers::none;
    case CollectiveOp::broadcast:
    case CollectiveOp::scatter: return op.c.peer == rank ? Peers::none : Peers::root;
    case CollectiveOp::send: return Peers::none;
    case CollectiveOp::recv: return Peers::root;
  }
  return Peers::all;
}

Peers consumers(const Op& op, int rank) {
  switch (op.c.op) {
    case CollectiveOp::barrier:
    case CollectiveOp::recv: return Peers::none;
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all: return Peers::all;
    case CollectiveOp::gather: return op.c.peer == rank ? Peers::none : Peers::root;
    case CollectiveOp::broadcast:
    case CollectiveOp::scatter: return op.c.peer == rank ? Peers::all : Peers::none;
    case CollectiveOp::send: return Peers::root;
  }
  return Peers::all;
}

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

void prepare(Op& op, const Collective& c, int rank, int size) {
  op.item = item_bytes(c.dtype);
  if (c.counts != nullptr) {
    const auto n = static_cast<size_t>(size) * (c.op == CollectiveOp::all_to_all ? 2 : 1);
    op.counts.assign(c.counts, c.counts + n);
    op.c.counts = op.counts.data();
  }
  op.in_bytes = in_count(op.c, rank, size) * op.item;
}

// The sequence is not in it: it chose the slot, and the slot's own number says so.
uint64_t fingerprint(const Op& op, uint64_t history, int size) {
  const bool rooted = op.c.op == CollectiveOp::broadcast || op.c.op == CollectiveOp::reduce ||
                      op.c.op == CollectiveOp::gather || op.c.op == CollectiveOp::scatter;
  static_assert(kMaxRanks < 0xffff);
  const uint64_t root = rooted ? static_cast<uint64_t>(op.c.peer) + 1 : 0;
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

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return out;
}

}  // namespace gangway::host
