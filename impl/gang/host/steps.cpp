// The steps of a call on a channel, and of those that only move bytes.
#include <algorithm>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/fold.h"

namespace gangway::host {
namespace {

// Bytes that `peer` has for this rank, where they begin in its input and in this rank's output.
struct Piece {
  size_t bytes = 0, in_first = 0, out_first = 0;
};

Piece piece_from(const Op& op, int peer, int rank, int size) {
  const auto bytes = [&](size_t in_first, size_t out_first, size_t count) {
    return Piece{count * op.item, in_first * op.item, out_first * op.item};
  };
  switch (op.c.op) {
    case CollectiveOp::all_gather:
    case CollectiveOp::gather: {
      const Part part = part_of(op, peer);
      return bytes(0, part.first, part.count);
    }
    case CollectiveOp::broadcast: return bytes(0, 0, op.c.count);
    case CollectiveOp::scatter: {
      const Part part = part_of(op, rank);
      return bytes(part.first, 0, part.count);
    }
    case CollectiveOp::all_to_all: {
      const Part part = received_part(op, peer, size);
      return bytes(part_of(op, rank).first, part.first,
                   part.count);  // with counts, the peer's table says where
    }
    case CollectiveOp::reduce_scatter: {
      const Part part = part_of(op, rank);
      return bytes(part.first, 0, part.count);
    }
    case CollectiveOp::barrier:
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce:
    case CollectiveOp::send:
    case CollectiveOp::recv: return {};
  }
  return {};
}

// Of its own input, copied into its output.
size_t own_bytes(const Op& op, int rank, int size) {
  const bool rooted = op.c.op == CollectiveOp::broadcast || op.c.op == CollectiveOp::scatter ||
                      op.c.op == CollectiveOp::gather;
  if (op.c.op == CollectiveOp::reduce_scatter || (rooted && op.c.peer != rank)) return 0;
  const Piece piece = piece_from(op, rank, rank, size);
  const bool there = static_cast<const unsigned char*>(op.c.in) + piece.in_first ==
                     static_cast<unsigned char*>(op.c.out) + piece.out_first;
  return there ? 0 : piece.bytes;
}

size_t rounds_of(size_t bytes, size_t chunk) { return bytes / chunk + (bytes % chunk != 0 ? 1 : 0); }

bool needs(const Op& op, int peer, int rank, bool small) {
  const Peers from = producers(op, rank, small);
  return peer != rank && (from == Peers::all || (from == Peers::root && op.c.peer == peer));
}

// A call that needs no look at the others' slots to know its path.
bool is_small(const Op& op) { return op.in_bytes <= kInline; }

}  // namespace

bool Core::step(Lane& lane, Op& op) {
  if (lane.peer < 0) return step_call(lane, op);
  return lane.sending ? step_send(lane, op) : step_receive(op);
}

bool Core::step_call(Lane& lane, Op& op) {
  bool moved = false;
  if (op.filled < op.fill_rounds && can_fill(lane, op)) {
    fill(lane, op);
    moved = true;
  }
  if (op.done) return moved;
  if (!op.planned) {
    if (!all_arrived(op)) return moved;
    plan(op);
  }
  if (op.drained < op.drain_rounds) {
    if (op.fold_rounds ? can_fold_round(lane, op) : can_drain(op)) {
      op.fold_rounds ? fold_round(lane, op) : drain(op);
      moved = true;
    }
  }
  if (op.collected < op.collect_rounds && can_collect(op)) {
    collect(op);
    moved = true;
  }
  if (op.drained == op.drain_rounds && op.collected == op.collect_rounds) mark_done(op);
  return moved;
}

bool Core::all_arrived(Op& op) {
  const Peers from = producers(op, rank_, is_small(op));
  for (; op.arrived < size_; ++op.arrived) {
    const int r = op.arrived;
    if (r == rank_ || from == Peers::none || (from == Peers::root && r != op.c.peer)) continue;
    const Slot& slot = slot_of(op, r);
    if (slot.arrived.load(std::memory_order_acquire) < op.sequence + 1) return false;
    check_fingerprint(op, r, slot);
  }
  return true;
}

bool Core::peers_done(Op& op) {
  if (op.c.op == CollectiveOp::send)
    return board_->pair(op.channel, rank_, op.c.peer).drained.load(std::memory_order_acquire) >=
           progress_of(op.sequence + 1, 0);
  // A fold into peers' outputs is over when all have folded, whoever the result is for.
  const Peers by = op.in_place_on_peers ? Peers::all : consumers(op, rank_);
  for (; op.finished < size_; ++op.finished) {
    const int r = op.finished;
    if (r == rank_ || by == Peers::none || (by == Peers::root && r != op.c.peer)) continue;
    const std::atomic<uint64_t>& drained = line(op.channel, r).drained;
    if (drained.load(std::memory_order_acquire) >= progress_of(op.sequence + 1, 0)) continue;
    // A peer that came with another call never ends this one. Once it has ended its call it may write a later
    // one into the slot, so a difference counts only while it has not.
    const Slot& slot = slot_of(op, r);
    if (slot.arrived.load(std::memory_order_acquire) == op.sequence + 1 &&
        slot.fingerprint.load(std::memory_order_acquire) != op.fingerprint &&
        drained.load(std::memory_order_acquire) < progress_of(op.sequence + 1, 0))
      mismatch(op, r, slot);
    return false;
  }
  return true;
}

void Core::plan(Op& op) {
  op.planned = true;
  // A sum in place is written where it was read a moment ago.
  op.streams =
      out_count(op.c, rank_, size_) * op.item >= kStreamed && !(reduces(op.c.op) && op.c.in == op.c.out);
  if (op.c.op == CollectiveOp::barrier) return;
  if (reduces(op.c.op)) return plan_reduction(op);
  const size_t staged_chunk = splits(op.c.op) ? kChunk / static_cast<size_t>(size_) / kLine * kLine : kChunk;
  bool staged = false;
  size_t longest = own_bytes(op, rank_, size_);
  for (int r = 0; r < size_; ++r) {
    if (!needs(op, r, rank_, false)) continue;
    const Slot& slot = slot_of(op, r);
    const size_t bytes = piece_from(op, r, rank_, size_).bytes;
    staged = staged || (slot.source == Source::staged && bytes != 0);
    longest = std::max(longest, bytes);
    if (op.c.op == CollectiveOp::all_to_all && !op.counts.empty()) {
      const auto* const table = slot.table == 0 ? nullptr : arena_.at<uint64_t>(slot.table);
      if (table == nullptr || table[rank_ + 1] - table[rank_] != received_part(op, r, size_).count)
        mismatch(op, r, slot);
    }
  }
  op.drain_chunk = staged ? staged_chunk : move_chunk(size_);
  op.drain_rounds = std::max<uint64_t>(1, rounds_of(longest, op.drain_chunk));
}

bool Core::can_drain(const Op& op) const {
  if (reduces(op.c.op)) return true;  // staged inputs are folded in rounds, not here
  for (int r = 0; r < size_; ++r) {
    if (!needs(op, r, rank_, false) || slot_of(op, r).source != Source::staged) continue;
    const size_t bytes = piece_from(op, r, rank_, size_).bytes;
    if (bytes == 0 || (op.drained != 0 && op.drained >= rounds_of(bytes, op.drain_chunk))) continue;
    if (line(op.channel, r).filled.load(std::memory_order_acquire) < progress_of(op.sequence, op.drained + 1))
      return false;
  }
  return true;
}

void Core::drain(Op& op) {
  if (op.in_place_on_peers) {
    fold_in_place(op);
  } else if (reduces(op.c.op)) {
    fold_small(op);
  } else if (op.c.op == CollectiveOp::reduce_scatter) {
    fold_segment(op);
  } else {
    move_own(op);
    for (int i = 1; i < size_; ++i) {
      const int peer = (rank_ + i) % size_;
      if (needs(op, peer, rank_, false)) move_from(op, peer);
    }
  }
  if (op.streams) end_stream();
  ++op.drained;
  if (op.drained < op.drain_rounds)
    announce(line(op.channel, rank_).drained, progress_of(op.sequence, op.drained));
}

// All have come and said how far behind they were: slots of calls before that may be written again, which
// saves a look at each one's line.
void Core::note_behind(const Op& op) {
  uint64_t behind = line(op.channel, rank_).behind(op.sequence);
  for (int r = 0; r < size_; ++r)
    if (r != rank_) behind = std::max<uint64_t>(behind, slot_of(op, r).behind);
  Lane& lane = channels_[static_cast<size_t>(op.channel)];
  if (behind <= op.sequence) lane.reusable = std::max(lane.reusable, op.sequence - behind);
}

void Core::mark_done(Op& op) {
  // Those this call did not need may have come with another one; whoever comes second finds out.
  if (producers(op, rank_, is_small(op)) != Peers::all) {
    for (int r = 0; r < size_; ++r) {
      const Slot& slot = slot_of(op, r);
      if (r != rank_ && slot.arrived.load(std::memory_order_acquire) == op.sequence + 1)
        check_fingerprint(op, r, slot);
    }
  } else {
    note_behind(op);
  }
  refuse_when_given_up(op);
  op.done = true;
  announce(line(op.channel, rank_).drained, progress_of(op.sequence + 1, 0));
}

const unsigned char* Core::source_of(const Op& op, int peer, size_t in_first) const {
  const Slot& slot = slot_of(op, peer);
  const size_t first = op.drained * op.drain_chunk;
  switch (slot.source) {
    case Source::none: return nullptr;
    case Source::inlined: return slot.payload + in_first + first;
    case Source::small:
    case Source::direct: return arena_.at(slot.in) + in_first + first;
    case Source::staged: {
      const uint64_t staging = line(op.channel, peer).staging.load(std::memory_order_relaxed);
      const size_t own_part = splits(op.c.op) ? static_cast<size_t>(rank_) * op.drain_chunk : 0;
      return arena_.at(staging) + op.drained % kStages * kChunk + own_part;
    }
  }
  return nullptr;
}

void Core::move_from(Op& op, int peer) {
  Piece piece = piece_from(op, peer, rank_, size_);
  const size_t first = op.drained * op.drain_chunk;
  if (first >= piece.bytes) return;
  if (op.c.op == CollectiveOp::all_to_all && !op.counts.empty())
    piece.in_first = arena_.at<uint64_t>(slot_of(op, peer).table)[rank_] * op.item;
  const size_t n = std::min(op.drain_chunk, piece.bytes - first);
  const auto copy = op.streams ? stream_bytes : copy_bytes;
  copy(static_cast<unsigned char*>(op.c.out) + piece.out_first + first, source_of(op, peer, piece.in_first),
       n);
  traffic_.bytes_moved += n;
}

void Core::move_own(Op& op) {
  const size_t bytes = own_bytes(op, rank_, size_), first = op.drained * op.drain_chunk;
  if (first >= bytes) return;
  // Chunk by chunk, because a chunk that was staged a moment ago is still in the cache.
  const Piece piece = piece_from(op, rank_, rank_, size_);
  const auto copy = op.streams ? stream_bytes : copy_bytes;
  copy(static_cast<unsigned char*>(op.c.out) + piece.out_first + first,
       static_cast<const unsigned char*>(op.c.in) + piece.in_first + first,
       std::min(op.drain_chunk, bytes - first));
}

}  // namespace gangway::host
