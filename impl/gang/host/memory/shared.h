// What lies in the arena besides tensors: the domain's header, a slot per rank, and a board per engine. Every
// field that two ranks touch is an atomic; offsets are bytes from the arena's start, 0 is "none".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gang/collective.h"

namespace gangway::host {

constexpr uint64_t kMagic = 0x34676e6177676e67ull;  // another one for each layout of what ranks share
constexpr int kMaxRanks = 256;
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr int kSlots = 8;            // collectives of one channel that a rank may have published at once
constexpr int kPairSlots = 4;        // messages of one ordered pair
constexpr size_t kInline = 40;       // payload that rides in the flag's own cache line
constexpr size_t kDirect = 512;      // from here an input in the arena is read where it lies
constexpr size_t kSmall = 4096;      // payload that rides beside the flag: copied once, no second wait
constexpr size_t kChunk = 64 << 10;  // bytes of one stage
// Chunks of a ring, by which a rank may be ahead of the slowest reader. So many that they leave the caches of the core that wrote
// them before it writes them again: reading them there takes four times as long as from the cache that cores share.
constexpr uint64_t kStages = 32;
constexpr int kRoundBits = 24;  // progress counters are sequence << kRoundBits | rounds done

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

enum class RankState : int32_t { absent = 0, alive = 1, left = 2, lost = 3, reporting = 4 };
enum class LossCause : int32_t { unknown = 0, signal = 1, exit = 2, silent = 3, thread_exit = 4 };

constexpr int kNotices = 8;  // threads of one rank that may say what they wait for

// What a blocked thread waits for, for the search of cycles. Valid while `version` is odd and unchanged.
struct WaitRecord {
  std::atomic<uint64_t> version;  // odd: blocked
  std::atomic<uint64_t> board, sequence, count;
  std::atomic<uint64_t>
      counter;  // offset of the counter of a fence, or 0; then `sequence` is the value waited for
  std::atomic<uint32_t> op, channel;
  std::atomic<int32_t> dtype, peer;
  std::atomic<uint64_t> missing[kMaxRanks / 64];  // ranks of the domain that have not begun the call
};

struct alignas(kLine) RankSlot {
  // Written by those who wake this rank.
  alignas(kLine) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleeping;         // threads of this rank that sleep on the doorbell
  std::atomic<uint32_t> uses_membarrier;  // this rank's process takes part in membarrier
  // Written by this rank rarely.
  alignas(kLine) std::atomic<int32_t> state;  // RankState
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> has_met;  // 1: it has seen all ranks come
  std::atomic<uint64_t> pid_space;
  std::atomic<int32_t> loss_cause, loss_value;
  std::atomic<int64_t> lost_at_ns;
  std::atomic<int64_t> threads_ended_ns;  // thread ranks: the last thread that used it is gone; 0: attended
  alignas(kLine) std::atomic<uint64_t> heartbeat;
  std::atomic<uint32_t> writing;  // this rank's moves into other ranks' memory that go on now
  // The robust lock word that the kernel marks when this rank's watchdog thread dies.
  alignas(kLine) std::atomic<uint32_t> alive_lock;
  alignas(
      kLine) std::atomic<uint64_t> freed;  // head of the list of blocks of this slice freed by other ranks
  // For the search of cycles.
  alignas(kLine) std::atomic<uint32_t> threads;  // that act for this rank
  WaitRecord waits[kNotices];
};

struct DomainHeader {
  std::atomic<uint64_t> magic;
  uint32_t size;
  uint32_t threads;
  uint64_t bytes;
  uint64_t slices;  // offset of slice 0
  uint64_t slice_bytes;
  uint64_t root_board;
  uint64_t limit;       // bytes that all ranks together may take
  int64_t liveness_ms;  // the same for all ranks; 0: off
  alignas(kLine) std::atomic<uint64_t> used;
  alignas(kLine) std::atomic<uint32_t> losses;  // ranks that were lost so far
  RankSlot ranks[];
};

// How a rank's input lies for its peers.
enum class Source : uint8_t { none, inlined, small, direct, staged };

// One published call of one rank. The first line is all that a tiny call needs.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> arrived;  // sequence + 1
  std::atomic<uint64_t> fingerprint;
  Source source;
  bool out_direct;
  bool accumulate;
  uint32_t behind;  // calls before this one that the rank had not ended when it published
  alignas(8) unsigned char payload[kInline];  // folded where it lies
  // Second line.
  alignas(kLine) CollectiveOp op;
  Reduce reduce;
  int32_t dtype;
  int32_t peer;
  uint64_t count;
  uint64_t in;           // offset of the input (direct) or of its copy (small)
  uint64_t out;          // offset of the output when out_direct
  uint64_t table;        // all_to_all with counts: size + 1 offsets in elements
  uint64_t first_stage;  // of the call's chunks and folded results in the rings
};
static_assert(sizeof(Slot) == 2 * kLine);

// One rank on one channel.
struct alignas(kLine) ChannelLine {
  Slot slots[kSlots];
  alignas(kLine) std::atomic<uint64_t> filled;
  alignas(kLine)
      std::atomic<uint64_t> drained;  // (sequence + 1) << kRoundBits: done, reads no peer's memory any more
  // Calls before `sequence` that the line's own rank has not ended.
  uint64_t behind(uint64_t sequence) const {
    return sequence - (drained.load(std::memory_order_relaxed) >> kRoundBits);
  }
  alignas(kLine) std::atomic<uint64_t> collected;
  std::atomic<uint64_t>
      staging;  // offset of kStages chunks and as many of folded results; set before the first use
  std::atomic<uint64_t> calls;  // of a rank that is draining: begun, or to begin yet
};

// One ordered pair of ranks on one channel. The sender writes slots and filled, the receiver drained and
// wanted.
struct alignas(kLine) PairLine {
  Slot slots[kPairSlots];
  alignas(kLine) std::atomic<uint64_t> filled;
  std::atomic<uint64_t> staging;  // offset of kStages chunks
  std::atomic<uint64_t> sends;    // of a sender that is draining: begun, or to begin yet
  alignas(kLine) std::atomic<uint64_t> drained;
  std::atomic<uint64_t> wanted;    // receives begun
  std::atomic<uint64_t> receives;  // as `sends`, of the receiver
};

// leaving: in shutdown; left: after it; gone: released without it; draining: the same with calls still on their
// way.
enum class Mark : uint32_t { here = 0, leaving = 1, left = 2, gone = 3, draining = 4 };

// A rank in shrink: waits in the call; or its last call ended because others asked for other ranks.
enum class Asking : uint32_t { no = 0, waits = 1, differed = 2 };

// Ranks of a board, in an order.
struct RankList {
  std::atomic<uint32_t> count;
  std::atomic<uint16_t> ranks[kMaxRanks];
};

struct alignas(kLine) MemberLine {
  std::atomic<uint32_t> mark;
  std::atomic<uint32_t> detached;
  std::atomic<int64_t> marked_ns;  // when `mark` was set
  // shrink: whom this rank counts on; it writes into no memory of theirs any more.
  RankList asked;
  std::atomic<uint64_t> asked_version;  // 0: it has not said; odd: it is writing
  std::atomic<uint32_t> asking;         // Asking
  std::atomic<uint32_t> refused_by;     // rank + 1 of a rank that asks for others
  std::atomic<uint64_t> shrunk;         // the last of the chain of new boards that this rank took
  std::atomic<uint32_t> given_up;
  int32_t domain_rank;
  std::atomic<uint64_t>
      making;  // the board that this rank makes for some of the members, who have not all taken it
  std::atomic<uint32_t> taken;  // this board, by this rank
};

// A board that survivors made, in the chain of a broken one.
struct Shrunk {
  std::atomic<uint64_t> next;
  uint64_t board;
  RankList members;
};

// Start of an engine's shared control memory; members, channels and pairs follow.
struct BoardHeader {
  uint64_t bytes;
  uint32_t size;
  int32_t owner;  // rank of the domain in whose slice it lies
  char label[64];
  std::atomic<uint32_t> holders;  // members that have not released it; the end of the last hold frees it
  std::atomic<uint64_t> blocks;   // list of the members' blocks that go with the board
  std::atomic<uint64_t> region;   // in the making: not all members have taken their hold
  // 0: whole; 1: an error is being written; 2: broken.
  alignas(kLine) std::atomic<uint32_t> broken;
  std::atomic<uint32_t> gone;      // members that are not `here` any more
  std::atomic<uint64_t> shrunk;    // the chain of new boards
  std::atomic<uint32_t> closed;    // shrink: no member begins to write into another member's memory
  std::atomic<uint32_t> given_up;  // a member failed calls in flight: their memory is its own again
  int64_t broken_ns;
  int32_t code;
  int32_t by;  // rank that broke it
  int32_t peer;
  char op[24];
  char message[640];
};

inline constexpr uint64_t progress_of(uint64_t sequence, uint64_t rounds) {
  return sequence << kRoundBits | rounds;
}

}  // namespace gangway::host
