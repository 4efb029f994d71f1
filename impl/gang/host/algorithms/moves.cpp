#include "gang/host/algorithms/moves.h"

#include "gang/host/call/own_memory.h"
#include "gang/kernels/fold.h"

namespace gangway::host {
namespace {

// Every rank copies a piece of its own input, except a rank that only sends to a root or receives from it.
size_t own_bytes(const Call& call, const Piece& own) {
  if (call.op.from != Peers::all && call.op.to != Peers::all) return 0;
  const bool there = static_cast<const unsigned char*>(call.op.c.in) + own.in_first ==
                     static_cast<unsigned char*>(call.op.c.out) + own.out_first;
  return there ? 0 : own.bytes;
}

void copy_round(const Call& call, size_t out_first, const unsigned char* from, size_t bytes) {
  const auto copy = call.op.streams ? stream_bytes : copy_bytes;
  copy(static_cast<unsigned char*>(call.op.c.out) + out_first, from, bytes);
}

// Returns false if the peer's process has ended, so that its memory is gone.
bool move_from(Call& call, int peer, const Piece& from) {
  const Op& op = call.op;
  const size_t first = op.drain.done * op.drain_chunk;
  if (first >= from.bytes) return true;
  const size_t n = std::min(op.drain_chunk, from.bytes - first);
  const Slot& slot = call.slot(peer);
  if (slot.source != Source::own)
    copy_round(call, from.out_first + first, source_of(call, peer, from.in_first), n);
  else if (!read_own(call, peer, slot.in + from.in_first + first,
                     static_cast<unsigned char*>(op.c.out) + from.out_first + first, n))
    return false;
  call.traffic.bytes_moved += n;
  return true;
}

// A chunk is copied soon after it was staged, because it is still in the cache then.
void move_own(const Call& call, const Piece& own) {
  const Op& op = call.op;
  const size_t bytes = own_bytes(call, own), first = op.drain.done * op.drain_chunk;
  if (first >= bytes) return;
  copy_round(call, own.out_first + first, static_cast<const unsigned char*>(op.c.in) + own.in_first + first,
             std::min(op.drain_chunk, bytes - first));
}

}  // namespace

Piece piece(const Op& op, size_t in_first, size_t out_first, size_t count) {
  return {count * op.item, in_first * op.item, out_first * op.item};
}

void plan_moves(Call& call, PieceFrom piece_from) {
  Op& op = call.op;
  const int size = call.size();
  bool staged = false;
  size_t longest = own_bytes(call, piece_from(call, call.rank()));
  for (int r = 0; r < size; ++r) {
    if (!needs(call, r)) continue;
    const size_t bytes = piece_from(call, r).bytes;
    staged = staged || (call.slot(r).source == Source::staged && bytes != 0);
    longest = std::max(longest, bytes);
  }
  const bool parts = op.algorithm->cut == Cut::by_reader;
  op.drain_chunk = !staged ? move_chunk(size)
                   : parts ? kChunk / static_cast<size_t>(size) / kLine * kLine
                           : kChunk;
  op.drain.all = std::max<uint64_t>(1, rounds_of(longest, op.drain_chunk));
}

bool step_moves(Call& call, PieceFrom piece_from) {
  const int rank = call.rank(), size = call.size();
  for (int r = 0; r < size; ++r)
    if (needs(call, r) && !chunk_is_filled(call, r, piece_from(call, r).bytes)) return false;
  move_own(call, piece_from(call, rank));
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    if (needs(call, peer) && !move_from(call, peer, piece_from(call, peer))) return false;
  }
  end_drain_round(call);
  return true;
}

}  // namespace gangway::host
