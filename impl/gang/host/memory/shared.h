// The layout of the control data in the arena: the domain's header, a slot for each rank, and a board for
// each engine. A domain is the set of ranks that share one arena. Every field that two ranks access is an
// atomic. Offsets are in bytes from the arena's start; 0 means "none".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gang/collective.h"

namespace gangway::host {

constexpr uint64_t kMagic = 0x35676e6177676e67ull;
constexpr int kMaxRanks = 256;
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr int kSlots = 8;        // how many collectives of one channel a rank may have published at once
constexpr int kPairSlots = 4;    // the same for messages of one ordered pair of ranks
constexpr size_t kInline = 40;   // payloads up to here travel in the flag's own cache line
constexpr size_t kDirect = 512;  // peers read an input of at least this size in place, if it is in the arena
constexpr size_t kSmall = 4096;  // payloads up to here are copied once, beside the flag
constexpr size_t kChunk = 64 << 10;  // bytes of one staged chunk
// Readers copy an input of at least so many bytes for each of them straight from its owner's own memory, if
// they can (peer_reads.h). For a shorter one the system call costs more than it saves.
constexpr size_t kKernelCopy = 16 << 10;
// How many chunks a staging ring has, so how far a writer may be ahead of its slowest reader. The ring is so
// large that a chunk leaves the private cache of the core that wrote it before that core writes it again:
// peers read a chunk four times as fast from the cache that all cores share as from another core's private
// cache.
constexpr uint64_t kStages = 32;
constexpr int kRoundBits = 24;  // a progress counter is sequence << kRoundBits | rounds done

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

enum class RankState : int32_t { absent = 0, alive = 1, left = 2, lost = 3, reporting = 4 };
enum class LossCause : int32_t { unknown = 0, signal = 1, exit = 2, silent = 3, thread_exit = 4 };

constexpr int kNotices = 8;  // how many threads of one rank can publish what they wait for

// What a blocked thread waits for. The search for cycles reads it. The record is valid while `version` is odd
// and unchanged.
struct WaitRecord {
  std::atomic<uint64_t> version;  // odd while the thread is blocked
  std::atomic<uint64_t> board, sequence, count;
  // The offset of a counter in a shared region if the thread waits for one; `sequence` is then the awaited
  // value. 0: it waits for a call.
  std::atomic<uint64_t> counter;
  std::atomic<uint32_t> op, channel;
  std::atomic<int32_t> dtype, peer;
  std::atomic<uint64_t> missing[kMaxRanks / 64];  // ranks of the domain that have not begun the call
};

struct alignas(kLine) RankSlot {
  // Ranks that wake this one write these.
  alignas(kLine) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleeping;         // how many threads of this rank sleep on the doorbell
  std::atomic<uint32_t> uses_membarrier;  // this rank's process takes part in membarrier
  // This rank writes these, rarely.
  alignas(kLine) std::atomic<int32_t> state;  // RankState
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> has_met;  // 1 once this rank has seen all ranks arrive
  std::atomic<uint64_t> pid_space;
  // A word in this rank's own memory, and whether this rank reads those of all others (peer_reads.h).
  std::atomic<uint64_t> word_at, word;
  std::atomic<uint32_t> reads_peers;
  std::atomic<int32_t> loss_cause, loss_value;
  std::atomic<int64_t> lost_at_ns;
  // Used if ranks are threads: when the last thread that acted for this rank ended. 0: a thread acts for it.
  std::atomic<int64_t> threads_ended_ns;
  alignas(kLine) std::atomic<uint64_t> heartbeat;
  std::atomic<uint32_t> writing;  // how many moves into other ranks' memory are under way
  // The robust lock that this rank's watchdog thread holds. The kernel marks it when that thread dies.
  alignas(kLine) std::atomic<uint32_t> alive_lock;
  // Head of the list of this slice's blocks that other ranks have freed.
  alignas(kLine) std::atomic<uint64_t> freed;
  // The search for cycles reads these.
  alignas(kLine) std::atomic<uint32_t> threads;  // how many threads act for this rank
  WaitRecord waits[kNotices];
};

struct DomainHeader {
  // These two stay where they are in every build, so that ranks of two builds can tell.
  std::atomic<uint64_t> magic;
  char build[32];  // library_build() of rank 0
  uint32_t size;
  uint32_t threads;
  uint64_t bytes;
  uint64_t slices;  // offset of the first slice
  uint64_t slice_bytes;
  uint64_t root_board;
  uint64_t limit;       // bytes that all ranks together may take
  int64_t liveness_ms;  // the same for all ranks; 0: no limit
  alignas(kLine) std::atomic<uint64_t> used;
  alignas(kLine) std::atomic<uint32_t> losses;  // how many ranks were lost so far
  RankSlot ranks[];
};

// How peers reach a rank's input. Direct: it lies in the arena. Own: in the memory of its process. Staged:
// it goes through the arena, chunk by chunk.
enum class Source : uint8_t { none, inlined, small, direct, own, staged };
// Returns whether peers read the input itself, so that it is not free before they have.
constexpr bool is_read_in_place(Source source) { return source == Source::direct || source == Source::own; }

// One published call of one rank. A tiny call touches the first cache line only.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> arrived;  // sequence + 1
  std::atomic<uint64_t> fingerprint;
  Source source;
  bool out_direct;
  bool accumulate;
  uint32_t behind;  // how many earlier calls the rank had not ended when it published this one
  // A tiny input. Reductions read it from here.
  alignas(8) unsigned char payload[kInline];
  // The second cache line.
  alignas(kLine) CollectiveOp op;
  Reduce reduce;
  int32_t dtype;
  int32_t peer;
  uint64_t count;
  uint64_t in;           // offset of the input (direct) or of its copy (small); the input's address (own)
  uint64_t out;          // offset of the output if out_direct
  uint64_t table;        // all_to_all with counts per rank: offset of size + 1 offsets in elements
  uint64_t first_stage;  // index of the call's first chunk, and first folded result, in the rings
};
static_assert(sizeof(Slot) == 2 * kLine);

// What one rank publishes on one channel.
struct alignas(kLine) ChannelLine {
  Slot slots[kSlots];
  alignas(kLine) std::atomic<uint64_t> filled;
  // (sequence + 1) << kRoundBits once the call is done and reads no peer's memory any more.
  alignas(kLine) std::atomic<uint64_t> drained;
  // How many calls before `sequence` the line's own rank has not ended.
  uint64_t behind(uint64_t sequence) const {
    return sequence - (drained.load(std::memory_order_relaxed) >> kRoundBits);
  }
  alignas(kLine) std::atomic<uint64_t> collected;
  // Offset of kStages chunks and as many folded results. Set before their first use.
  std::atomic<uint64_t> staging;
  std::atomic<uint64_t> calls;  // of a rank that is draining: how many calls it has begun or will begin
};

// One ordered pair of ranks on one channel. The sender writes `slots`, `filled` and `staging`; the receiver
// writes `drained` and `wanted`.
struct alignas(kLine) PairLine {
  Slot slots[kPairSlots];
  alignas(kLine) std::atomic<uint64_t> filled;
  std::atomic<uint64_t> staging;  // offset of kStages chunks
  std::atomic<uint64_t> sends;    // of a sender that is draining: how many sends it has begun or will begin
  alignas(kLine) std::atomic<uint64_t> drained;
  std::atomic<uint64_t> wanted;    // how many receives have begun
  std::atomic<uint64_t> receives;  // the same as `sends`, of the receiver
};

// The state of a member in its engine. here: it uses the engine. leaving: it is in shutdown. left: it has
// shut down. gone: it released the engine without a shutdown. draining: as gone, but it has calls in flight.
enum class Mark : uint32_t { here = 0, leaving = 1, left = 2, gone = 3, draining = 4 };

// The state of a member in shrink. no: it is not in a call of shrink. waits: it is in one. differed: its last
// call ended because other members asked for other ranks.
enum class Asking : uint32_t { no = 0, waits = 1, differed = 2 };

// An ordered list of ranks of a board.
struct RankList {
  std::atomic<uint32_t> count;
  std::atomic<uint16_t> ranks[kMaxRanks];
};

struct alignas(kLine) MemberLine {
  std::atomic<uint32_t> mark;
  std::atomic<uint32_t> detached;
  std::atomic<int64_t> marked_ns;  // when `mark` was set
  // For shrink: the ranks that this member asks for. It does not write into their memory any more.
  RankList asked;
  std::atomic<uint64_t> asked_version;  // 0: it has not asked; odd: it is writing the list
  std::atomic<uint32_t> asking;         // an Asking
  std::atomic<uint32_t> refused_by;     // rank + 1 of a member that asks for other ranks
  std::atomic<uint64_t> shrunk;         // the last board that this rank took from the chain of new boards
  std::atomic<uint32_t> given_up;
  int32_t domain_rank;
  // The child board that this member is making. Not all members of the child have taken it yet.
  std::atomic<uint64_t> making;
  std::atomic<uint32_t> taken;  // this rank has taken this board
};

// A board that survivors made. A broken board has a chain of these.
struct Shrunk {
  std::atomic<uint64_t> next;
  uint64_t board;
  RankList members;
};

// The start of an engine's shared control memory. The lines of members, channels and pairs follow it.
struct BoardHeader {
  uint64_t bytes;
  uint32_t size;
  int32_t owner;  // the rank of the domain in whose slice the board lies
  char label[64];
  std::atomic<uint32_t> holders;  // how many members have not released it; the last one to do so frees it
  std::atomic<uint64_t> blocks;   // list of the members' blocks that are freed with the board
  std::atomic<uint64_t> region;   // a shared region in creation: not all members have a reference to it yet
  // 0: whole; 1: an error is being written; 2: broken.
  alignas(kLine) std::atomic<uint32_t> broken;
  std::atomic<uint32_t> gone;      // how many members are not `here` any more
  std::atomic<uint64_t> shrunk;    // the chain of new boards that survivors made
  std::atomic<uint32_t> closed;    // set by shrink: no member begins to write into another member's memory
  std::atomic<uint32_t> given_up;  // a member failed its calls in flight and may already reuse their memory
  int64_t broken_ns;
  int32_t code;
  int32_t by;  // the rank that broke it
  int32_t peer;
  char op[24];
  char message[640];
};

inline constexpr uint64_t progress_of(uint64_t sequence, uint64_t rounds) {
  return sequence << kRoundBits | rounds;
}

}  // namespace gangway::host
