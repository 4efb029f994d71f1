// One call of this rank on one gang, as the network sees it: the notes that its peers owe, and the pieces of
// memory that come and go.
//
// A rank that begins a call sends a note to each peer of the call: to the ranks that it exchanges pieces
// with. The note grants room: a peer sends its pieces only after it has seen the note, so every byte that
// arrives has a place of its own. A short piece rides in the note itself.
//
// The note says what the call is, so that calls that differ are noticed. The pieces of a collective connect
// all ranks of the gang. So where ranks call two different ones, some rank waits for a note of its call from
// a rank that sends the note of the other, or gets a note from a rank that is not its peer. It tells all.
//
// Pieces that are folded are folded as they come, and results leave as far as they are done (slice_fold.h).
//
// Thread rule: under the network's mutex. last() runs without it.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gang/collective.h"
#include "gang/network/slice_fold.h"

namespace gangway::network {

// The lanes of a channel. A collective has the notes of its peers. A message of a pair goes to this rank or
// comes from it; each pair and direction counts its messages.
enum class Lane : uint8_t { collective = 0, to_me = 1, from_me = 2 };

struct Key {
  Channel channel = Channel::user;
  Lane lane = Lane::collective;
  int peer = -1;  // the other rank of a pair
  uint64_t sequence = 0;
  auto operator<=>(const Key&) const = default;
};

// What a rank tells a peer about a call. Ranks run the same build, so its layout is the same on both sides.
struct Note {
  uint64_t sequence = 0, count = 0;
  uint64_t sends = 0, takes = 0;  // bytes that the author sends to this peer, and takes from it
  uint32_t dtype = 0;
  int32_t root = -1;
  uint8_t op = 0, reduce = 0, channel = 0;
  uint8_t lane = 0;           // as the author sees it
  uint32_t inline_bytes = 0;  // the payload of part 0, which follows the note
  uint64_t counts = 0;        // a hash of the counts per rank, where all ranks give the same
};
static_assert(sizeof(Note) == 56);

constexpr size_t kInlineBytes = 4 << 10;  // the most bytes that ride in a note

struct Incoming {
  int from = 0;
  uint16_t part = 0;
  char* to = nullptr;  // null: it is folded
  SliceFold* fold = nullptr;
  int input = 0;  // of the fold
  size_t bytes = 0;
  size_t have = 0;
};

struct Outgoing {
  int to = 0;
  uint16_t part = 0;
  const char* from = nullptr;
  size_t bytes = 0;
  size_t sent = 0;
  // What it waits for: the incoming piece that it hands on, or the fold whose result it is.
  int after = -1;
  const SliceFold* fold = nullptr;
  size_t ready = 0;        // the first bytes, which the memory holds already
  bool is_queued = false;  // or has left whole
};

class Transfer {
 public:
  Key key;
  Note note;  // without sends and takes, which differ by peer
  const char* op_name = "";
  Touched memory;  // of a collective

  std::vector<int> peers;       // ranks that owe a note and get one
  std::vector<bool> noted;      // by rank of the gang
  std::vector<bool> owes_room;  // by rank of the gang: it got a payload in a note, and has not answered
  int missing_notes = 0;
  std::vector<Incoming> in;
  std::vector<Outgoing> out;
  size_t missing_in = 0;   // incoming pieces that are not whole
  size_t missing_out = 0;  // outgoing pieces that have not left

  std::vector<std::unique_ptr<SliceFold>> folds;
  // Run by a thread that waits or polls, when all pieces have come and left. May be null.
  std::function<void()> last;
  std::vector<std::unique_ptr<char[]>> staging;

  bool is_computing = false;    // it is in the queue of those to compute, or being computed
  std::function<void()> ended;  // called once, when all is done; under the network's mutex

  bool has_peer(int rank) const;
  bool wants_last() const { return last != nullptr && is_moved(); }
  bool is_moved() const { return missing_notes == 0 && missing_in == 0 && missing_out == 0; }
  bool is_done() const { return last == nullptr && is_moved(); }

  // Bytes up to `have` of this incoming piece have come. Returns whether more of outgoing pieces may leave.
  bool advance(size_t piece);
  uint64_t sends_to(int peer) const;
  uint64_t takes_from(int peer) const;
};

using TransferPtr = std::shared_ptr<Transfer>;

}  // namespace gangway::network
