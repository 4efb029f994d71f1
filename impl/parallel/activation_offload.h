// Saved activations of blocks that lie in pinned memory of the host from forward to backward.
//
// A block that is offloaded saves into a piece. Pieces lie in two slots of device memory in turn. When the next piece
// begins, the last one starts on its way to the host, on a stream beside compute; the piece after that takes its slot.
// Backward enters a piece: contents that another piece has overwritten come back to the same addresses, so what the frame
// refers to stays right, and the piece before starts on its way. Pieces that no other has overwritten never move back, and
// the last one of all is not copied at all.
//
// One side stream holds all copies, in order. So compute that writes a slot comes after every copy that was started
// before, and a piece comes back after it, and what lay there, have gone out. The host waits for nothing.
//
// Weight halves that run later read what the input half has written over saved activations: such a piece goes out again.
//
// Thread rule: one thread at a time; the end of a piece comes on any thread (frames of callers).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/side_stream.h"
#include "tensor/stack.h"

namespace gangway {

class ActivationOffload : public std::enable_shared_from_this<ActivationOffload> {
 public:
  // `memory`: of the slots, on a device whose memory is not the host's.
  ActivationOffload(std::shared_ptr<Device> device, const std::shared_ptr<Allocator>& memory)
      : device_(std::move(device)), side_(*device_), slots_{Stack(memory), Stack(memory)} {}

  class Piece;
  using PiecePtr = std::shared_ptr<Piece>;

  // Forward: what is allocated in the piece until end() belongs to it. `before`: the piece that the same forward made
  // last; null: none.
  PiecePtr begin(const PiecePtr& before, Stream& stream);
  // `outputs` of the block are no part of its piece if it ends with them and they are not saved in `frame`.
  void end(Piece& piece, std::span<const Tensor> outputs, const Frame& frame);
  // Backward: later work of `stream` finds the contents in place; `modifies`: it may change them and read them again
  // after another piece was entered.
  void enter(Piece& piece, bool modifies, Stream& stream);

  size_t device_bytes() const;  // most that pieces held at once in the slots
  size_t host_bytes() const { return most_host_bytes_; }
  // Since the beginning: copied to the host, and back.
  size_t bytes_out() const { return bytes_out_; }
  size_t bytes_back() const { return bytes_back_; }
  size_t live_host_bytes() const { return host_bytes_; }

 private:
  bool is_in_place(const Piece& piece) const;
  bool share_memory(const Piece& a, const Piece& b) const;
  void send(Piece& piece, Stream& stream);
  void bring(const PiecePtr& piece, Stream& stream);
  PiecePtr holder_of(const Buffer& buffer) const;  // null: none
  void wait_for(Piece& piece, Stream& stream);

  const std::shared_ptr<Device> device_;
  SideStream side_;
  Stack slots_[2];
  std::map<const Buffer*, std::weak_ptr<Piece>> holders_;  // whose contents lie there
  std::weak_ptr<Piece> last_;  // that was begun or entered last: no other may differ from its host copy
  std::atomic<size_t> host_bytes_ = 0;
  size_t most_host_bytes_ = 0, bytes_out_ = 0, bytes_back_ = 0;
};

// `passes_on`: the module that gets the outputs is offloaded, too, and no other reads them; it copies what it saves.
ModulePtr make_offloaded(ModulePtr inner, std::shared_ptr<ActivationOffload> offload, bool passes_on);

// Wraps the blocks of a model, with the wrappers that they have.
void wrap_offloaded(ModulePtr& root, const std::shared_ptr<ActivationOffload>& offload);

}  // namespace gangway
