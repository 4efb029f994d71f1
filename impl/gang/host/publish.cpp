// Saying on the board that this rank has begun a call, and where its memory lies.
#include <cstring>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/fold.h"

namespace gangway::host {

uint64_t Core::block_of(uint64_t& offset, size_t bytes) {
  if (offset == 0) {
    // The first line belongs to the board, which frees the block when nobody can read it any more.
    const uint64_t block = member_->slice()->allocate(kLine + bytes, true);
    board_->keep_block(member_->rank(), block, kLine + bytes);
    offset = block + kLine;
  }
  return offset;
}

void Core::choose_source(Lane& lane, Op& op, Slot& slot, int slots) {
  if (op.in_bytes == 0) {
    op.source = Source::none;
  } else if (op.in_bytes <= kInline) {
    op.source = Source::inlined;
    std::memcpy(slot.payload, op.c.in, op.in_bytes);
  } else {
    op.in_offset = arena_.offset_of(op.c.in, op.in_bytes);
    if (op.in_bytes <= (op.in_offset != 0 ? kDirect : kSmall)) {
      op.source = Source::small;
      slot.in = block_of(lane.small, static_cast<size_t>(slots) * kSmall) +
                op.sequence % static_cast<uint64_t>(slots) * kSmall;
      copy_bytes(arena_.at(slot.in), op.c.in, op.in_bytes);
    } else if (op.in_offset != 0) {
      op.source = Source::direct;
      slot.in = op.in_offset;
    } else {
      op.source = Source::staged;
    }
  }
  // What rides beside the flag counts as staged only where it could not have been read in place.
  if (op.source == Source::small && op.in_offset == 0) traffic_.bytes_staged += op.in_bytes;
  slot.op = op.c.op;
  slot.reduce = op.c.reduce;
  slot.source = op.source;
  slot.accumulate = op.c.accumulate;
  slot.dtype = static_cast<int32_t>(op.c.dtype);
  slot.peer = op.c.peer;
  slot.count = op.c.count;
}

bool Core::publish_op(Lane& lane, Op& op) {
  if (lane.peer < 0) return publish_call(lane, op);
  return lane.sending ? publish_send(lane, op) : publish_receive(lane, op);
}

bool Core::publish_call(Lane& lane, Op& op) {
  if (outstanding_ > 1 && lane.head != &op && holder(op) != nullptr) return false;
  if (op.sequence >= lane.reusable + kSlots) {
    uint64_t least = op.sequence;
    for (int r = 0; r < size_; ++r)  // this rank too, see check_fingerprint
      least = std::min(least, line(lane.channel, r).drained.load(std::memory_order_acquire) >> kRoundBits);
    lane.reusable = least;
    if (op.sequence >= lane.reusable + kSlots) return false;
  }
  ChannelLine& mine = line(lane.channel, rank_);
  Slot& slot = mine.slots[op.sequence % kSlots];
  choose_source(lane, op, slot, kSlots);
  if (op.source == Source::staged) {
    mine.staging.store(block_of(lane.staging, 2 * kStages * kChunk), std::memory_order_release);
    op.chunk = kChunk;
    size_t longest = op.in_bytes;
    if (splits(op.c.op)) {
      op.chunk = kChunk / static_cast<size_t>(size_) / kLine * kLine;
      longest = 0;
      for (int j = 0; j < size_; ++j)
        if (j != rank_) longest = std::max(longest, part_of(op, j).count * op.item);
    }
    op.fill_rounds = (longest + op.chunk - 1) / op.chunk;
  }
  if (reduces(op.c.op) && op.in_bytes > kInline) {
    op.out_offset = receives(op, rank_) ? arena_.offset_of(op.c.out, op.in_bytes) : 0;
    slot.out = op.out_offset;
    slot.out_direct = op.out_offset != 0;
  }
  slot.behind = static_cast<uint32_t>(mine.behind(op.sequence));
  slot.table = 0;
  if (op.c.op == CollectiveOp::all_to_all && !op.counts.empty()) {
    const size_t words = static_cast<size_t>(size_) + 1;
    slot.table = block_of(lane.tables, kSlots * words * sizeof(uint64_t)) +
                 op.sequence % kSlots * words * sizeof(uint64_t);
    auto* const table = arena_.at<uint64_t>(slot.table);
    table[0] = 0;
    for (size_t j = 0; j + 1 < words; ++j) table[j + 1] = table[j] + op.counts[j];
  }
  slot.fingerprint.store(op.fingerprint, std::memory_order_release);
  op.published = true;
  announce(slot.arrived, op.sequence + 1);
  __builtin_prefetch(&mine.slots[(op.sequence + 1) % kSlots],
                     1);  // off the peers' caches before the next call needs it
  return true;
}

bool Core::publish_receive(Lane& lane, Op& op) {
  op.published = true;
  announce(board_->pair(lane.channel, lane.peer, rank_).wanted, op.sequence + 1);
  return true;
}

bool Core::publish_send(Lane& lane, Op& op) {
  PairLine& pair = board_->pair(lane.channel, rank_, lane.peer);
  if (op.sequence >= lane.reusable + kPairSlots) {
    lane.reusable = pair.drained.load(std::memory_order_acquire) >> kRoundBits;
    if (op.sequence >= lane.reusable + kPairSlots) return false;
  }
  Slot& slot = pair.slots[op.sequence % kPairSlots];
  choose_source(lane, op, slot, kPairSlots);
  if (op.source == Source::staged) {
    pair.staging.store(block_of(lane.staging, kStages * kChunk), std::memory_order_release);
    op.chunk = kChunk;
    op.fill_rounds = (op.in_bytes + op.chunk - 1) / op.chunk;
  }
  slot.fingerprint.store(op.fingerprint, std::memory_order_relaxed);
  op.published = true;
  announce(slot.arrived, op.sequence + 1);
  __builtin_prefetch(&pair.slots[(op.sequence + 1) % kPairSlots], 1);
  return true;
}

}  // namespace gangway::host
