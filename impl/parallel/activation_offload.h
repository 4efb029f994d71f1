// Activation offload: the activations that a block saves stay in pinned host memory from forward to backward.
//
// Every offloaded block saves its activations into one piece. Pieces use two slots of device memory in turn.
// When a forward begins the next piece, the previous piece starts its copy to the host on a side stream, so
// that a later piece can use its slot. When backward enters a piece whose memory another piece has
// overwritten, its contents are copied back to the same addresses, so that every reference in the frame stays
// valid; the piece that the forward made before it is copied back at the same time. A piece that nothing has
// overwritten is never copied back, and the last piece of a forward is not copied at all if backward frees it
// before it enters another piece.
//
// One side stream runs all copies in order. Compute that writes a slot therefore waits for all copies that
// were started before, and a piece is copied back only after it and the piece that lies in its memory have
// been copied out. The host never waits.
//
// A deferred weight half reads what the input half has written over saved activations. A piece with deferred
// weight halves is therefore copied to the host again after its input half.
//
// Thread rule: one thread at a time, except that a piece may be destroyed on any thread, as a caller's frame
// may.
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
  // `memory` gives the slots. The memory of the device must not be the host's.
  ActivationOffload(std::shared_ptr<Device> device, const std::shared_ptr<Allocator>& memory)
      : device_(std::move(device)), side_(*device_), slots_{Stack(memory), Stack(memory)} {}

  class Piece;
  using PiecePtr = std::shared_ptr<Piece>;

  // Forward: starts a piece, which owns everything that is allocated in it until end(). `before` is the
  // previous piece of the same forward, or null.
  PiecePtr begin(const PiecePtr& before, Stream& stream);
  // Ends the piece. Outputs of the block that lie at its end and that `frame` does not save are left out of
  // it, so that they are not copied.
  void end(Piece& piece, std::span<const Tensor> outputs, const Frame& frame);
  // Backward: later work of `stream` finds the contents of the piece in place. `modifies` says that this work
  // may change them and may read them again after another piece was entered.
  void enter(Piece& piece, bool modifies, Stream& stream);

  size_t device_bytes() const;                            // peak size of the slots
  size_t host_bytes() const { return most_host_bytes_; }  // peak
  // Bytes copied to the host, and bytes copied back, since construction.
  size_t bytes_out() const { return bytes_out_; }
  size_t bytes_back() const { return bytes_back_; }
  size_t live_host_bytes() const { return host_bytes_; }

 private:
  bool is_in_place(const Piece& piece) const;
  bool share_memory(const Piece& a, const Piece& b) const;
  void copy_to_host(Piece& piece, Stream& stream);
  void copy_back(const PiecePtr& piece, Stream& stream);
  PiecePtr holder_of(const Buffer& buffer) const;  // the piece that lies there, or null
  void wait_for(Piece& piece, Stream& stream);

  const std::shared_ptr<Device> device_;
  SideStream side_;
  Stack slots_[2];
  std::map<const Buffer*, std::weak_ptr<Piece>> holders_;  // the piece whose contents lie there
  // The piece that was begun or entered last. It alone may differ from its copy on the host.
  std::weak_ptr<Piece> last_;
  std::atomic<size_t> host_bytes_ = 0;
  size_t most_host_bytes_ = 0, bytes_out_ = 0, bytes_back_ = 0;
};

// Wraps one module. `passes_on` says that only one other module reads the outputs, and that it is offloaded,
// too; it copies its inputs, so that this one need not copy its outputs.
ModulePtr make_offloaded(ModulePtr inner, std::shared_ptr<ActivationOffload> offload, bool passes_on);

// Wraps every block of a model, around the wrappers that it has already.
void wrap_offloaded(ModulePtr& root, const std::shared_ptr<ActivationOffload>& offload);

}  // namespace gangway
