// The connections between this process and one peer: control, whose frames have a MAC, and data, which
// carries chunks of pieces and opens when there is one. Chunks to a peer of the same host go through shared
// memory, where the data connection wakes a peer that sleeps; those to another host may go over a wire
// (fabric_module.h), which needs no data connection.
//
//   chunk   head 32 bytes: gang u64, sequence u64, channel u8, lane u8 (as the sender sees it), part u16,
//                          bytes u32, zero u64
//           payload
//           tail 8 bytes: 1 if the payload is good. 0: the sender gave the call up in the middle of the chunk.
//
// A chunk names a call and a piece of it, and goes straight into the memory of that piece, or into its fold.
// A chunk of a call that this rank has given up is read and thrown away.
//
// Thread rule: under the network's mutex.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "gang/descriptor.h"
#include "gang/fabric_module.h"
#include "gang/network/control_frames.h"
#include "gang/network/group.h"
#include "gang/network/memory_wire.h"

namespace gangway::network {

struct ChunkHead {
  uint64_t gang = 0, sequence = 0;
  uint8_t channel = 0, lane = 0;
  uint16_t part = 0;
  uint32_t bytes = 0;
  uint64_t zero = 0;
};
static_assert(sizeof(ChunkHead) == 32);

constexpr size_t kChunk = 256 << 10;

// A connection that has ended, or bytes that no peer sends.
struct LinkEnd {
  std::string why;
};

// One piece of a call, which waits to be sent or is being received.
struct PieceOfCall {
  std::shared_ptr<Group> group;
  TransferPtr transfer;  // null: the rank has given the call up
  size_t piece = 0;
};

class Link {
 public:
  Link(int rank, Descriptor control, const Secret& to_peer, const Secret& from_peer);

  // --- control ---
  void post(const ControlFrame& frame);  // sends what the socket takes; throws LinkEnd
  void send_control();                   // throws LinkEnd
  // Reads what has come and returns whether there may be more. Throws LinkEnd.
  bool receive_control();
  std::optional<ControlFrame> next_frame() { return reader_.next(); }

  // --- data ---
  void queue(const std::shared_ptr<Group>& group, const TransferPtr& transfer, size_t piece);
  // Sends what is ready until the socket is full, the budget is spent, or the queue is empty. Calls
  // `left(group, transfer)` for each piece that has left whole. Throws LinkEnd.
  template <typename Left>
  void send_data(size_t budget, Left&& left);
  // Reads chunks. `find(head)` returns the place of a chunk; `came(place)` is called for each good one.
  // Throws LinkEnd.
  template <typename Find, typename Came>
  void receive_data(size_t budget, Find&& find, Came&& came);
  // Forgets a call: what is left of its chunks is sent as void, and read without keeping it.
  void forget(const Transfer& transfer) noexcept;
  bool has_data() const { return is_sending_ || !queue_.empty(); }
  // Returns whether what carries the chunks is open. Until it is, they stay in the queue.
  bool can_send() const { return wire != nullptr || data; }
  // All that this side sends has left it, so its end may follow.
  bool is_flushed() const {
    return control_out.empty() && !has_data() && (wire == nullptr || wire->is_idle());
  }
  // Of shared memory: POLLIN if chunks have come, POLLOUT if queued ones find room.
  short memory_events() const;
  // Before this process sleeps: asks the peer to wake it. Returns false if there is something to do already.
  bool may_sleep();

  const int rank;
  Descriptor control;
  Descriptor data;                     // empty until the first chunk wants to go either way
  bool is_dialed = false;              // the data connection was asked for
  std::unique_ptr<MemoryWire> memory;  // null: the peer is on another host
  std::unique_ptr<Wire> wire;          // null: chunks do not go over a fabric
  Deadline wire_mends = Deadline::never();
  std::string control_out;  // frames that the socket has not taken yet
  bool has_left = false;    // the peer has said goodbye
  bool has_ended = false;   // the peer's root gang was shut down, too
  bool is_lost = false;     // the connections have ended
  bool is_shut = false;     // this side has sent its end
  int beats = 0;            // sent since the peer was last heard
  Deadline::Clock::time_point heard = Deadline::Clock::now();

 private:
  bool start_chunk();
  // Each moves some bytes of the current chunk, at most `most`, and returns their number; 0: not now.
  size_t send_part(size_t most);
  size_t receive_part(size_t most);
  size_t fold_part(size_t most);
  size_t send_parts(std::span<const iovec> parts);
  size_t receive_parts(std::span<const iovec> parts);
  void take_bells();
  void ring_bell();

  ControlReader reader_;
  ControlWriter writer_;

  std::deque<PieceOfCall> queue_;
  bool is_sending_ = false;
  PieceOfCall sending_;
  ChunkHead out_head_;
  uint64_t out_tail_ = 1;
  const char* out_at_ = nullptr;  // null: zeros
  size_t out_done_ = 0;           // of head, payload and tail together

  ChunkHead in_head_;
  uint64_t in_tail_ = 0;
  PieceOfCall landing_;
  char* in_at_ = nullptr;         // null: folded, or thrown away
  SliceFold* in_fold_ = nullptr;  // null: not folded
  int in_input_ = 0;              // of the fold
  size_t in_done_ = 0;
};

template <typename Left>
void Link::send_data(size_t budget, Left&& left) {
  while (budget != 0 && (is_sending_ || start_chunk())) {
    const size_t sent = send_part(budget);
    if (sent == 0) return;
    budget -= sent < budget ? sent : budget;
    if (out_done_ != sizeof out_head_ + out_head_.bytes + sizeof out_tail_) continue;
    is_sending_ = false;
    const PieceOfCall done = std::exchange(sending_, {});
    if (done.transfer == nullptr) continue;
    Outgoing& piece = done.transfer->out[done.piece];
    piece.sent += out_head_.bytes;
    if (piece.sent == piece.bytes)
      left(done.group, done.transfer);
    else if (piece.sent != piece.ready)
      queue_.push_back(done);  // behind the others, so that channels alternate
    else
      piece.is_queued = false;
  }
}

template <typename Find, typename Came>
void Link::receive_data(size_t budget, Find&& find, Came&& came) {
  while (budget != 0) {
    const size_t got = receive_part(budget);
    if (got == 0) return;
    budget -= got < budget ? got : budget;
    if (in_done_ == sizeof in_head_) {
      if (in_head_.bytes == 0 || in_head_.bytes > kChunk) throw LinkEnd{"sent a chunk of a wrong size"};
      landing_ = find(in_head_);
      in_at_ = nullptr;
      in_fold_ = nullptr;
      if (landing_.transfer != nullptr) {
        const Incoming& piece = landing_.transfer->in[landing_.piece];
        if (in_head_.bytes > piece.bytes - piece.have) throw LinkEnd{"sent more than was asked for"};
        in_fold_ = piece.fold;
        in_input_ = piece.input;
        if (in_fold_ == nullptr) in_at_ = piece.to + piece.have;
      }
    }
    if (in_done_ < sizeof in_head_ + in_head_.bytes + sizeof in_tail_) continue;
    in_done_ = 0;
    const PieceOfCall done = std::exchange(landing_, {});
    if (done.transfer == nullptr || in_tail_ != 1) continue;
    Incoming& piece = done.transfer->in[done.piece];
    piece.have += in_head_.bytes;
    came(done);
  }
}

}  // namespace gangway::network
