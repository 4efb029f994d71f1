// One call of this rank on one gang, as the network sees it: the notes that its peers owe, and the pieces of
// memory that come and go.
//
// A rank that begins a call sends a note to each peer of the call. The note says what the call is, so that
// calls that differ are noticed, and it grants room: a peer sends its pieces only after it has seen the note,
// so every byte that arrives has a place of its own. A short piece rides in the note itself.
//
// Thread rule: under the network's mutex. fold() and last() run without it, in one thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gang/collective.h"

namespace gangway::network {

// The lanes of a channel. A collective has a note from every rank of the gang. A message of a pair goes to
// this rank or comes from it; each pair and direction counts its messages.
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
  uint64_t zero = 0;
};
static_assert(sizeof(Note) == 56);

constexpr size_t kInlineBytes = 4 << 10;  // the most bytes that ride in a note

struct Incoming {
  int from = 0;
  uint16_t part = 0;
  char* to = nullptr;
  size_t bytes = 0;
  size_t have = 0;
  bool is_folded = false;  // fold() needs it
};

struct Outgoing {
  int to = 0;
  uint16_t part = 0;
  const char* from = nullptr;
  size_t bytes = 0;
  size_t sent = 0;
  int after = -1;  // the incoming piece that it hands on
  // It may go: the memory holds its bytes. Other pieces wait for fold(), or for the piece that they hand on.
  bool is_ready = true;
  bool is_queued = false;
};

class Transfer {
 public:
  Key key;
  Note note;  // without sends and takes, which differ by peer
  const char* op_name = "";

  std::vector<int> peers;       // ranks that owe a note and get one
  std::vector<bool> noted;      // by rank of the gang
  std::vector<bool> owes_room;  // by rank of the gang: it got a payload in a note, and has not answered
  int missing_notes = 0;
  std::vector<Incoming> in;
  std::vector<Outgoing> out;
  size_t missing_in = 0;       // incoming pieces that are not whole
  size_t missing_to_fold = 0;  // those of them that fold() needs
  size_t missing_out = 0;      // outgoing pieces that have not left

  // The arithmetic between the parts, run by a thread that waits or polls: fold() when the pieces that it
  // needs have come, then last() when all pieces have come and left. Either may be null.
  std::function<void()> fold;
  std::function<void()> last;
  bool fold_needs_out = false;  // fold() writes to memory that outgoing pieces read
  std::vector<std::unique_ptr<char[]>> staging;

  bool is_computing = false;    // it is in the queue of those to compute, or being computed
  std::function<void()> ended;  // called once, when all is done; under the network's mutex

  bool wants_fold() const {
    return fold != nullptr && missing_notes == 0 && missing_to_fold == 0 &&
           !(fold_needs_out && missing_out != 0);
  }
  bool wants_last() const { return fold == nullptr && last != nullptr && is_moved(); }
  bool is_moved() const { return missing_notes == 0 && missing_in == 0 && missing_out == 0; }
  bool is_done() const { return fold == nullptr && last == nullptr && is_moved(); }

  uint64_t sends_to(int peer) const;
  uint64_t takes_from(int peer) const;
};

using TransferPtr = std::shared_ptr<Transfer>;

}  // namespace gangway::network
