// The registrations of an engine's communicators. NCCL places the windows of a communicator one after another
// at offsets that every rank computes by itself, so all ranks must register and deregister the same buffers
// in the same order. A deregistration maps memory out, so no collective may be in flight on the communicator.
//
// Thread rule: one thread at a time, under the mutex that guards the communicators.
#pragma once

#include <nccl.h>

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gang/nccl/registered_memory.h"

namespace gangway::nccl {

// What NCCL has made of a batch of buffers. The order is that of the ways to try.
enum class Registered : uint8_t {
  windows,  // symmetric: NCCL moves data between the buffers, or by the switch, without copies of its own
  buffers,  // by ncclCommRegister
  none,
};

// How far a rank is with a batch: one of these, or kFailed + a ncclResult_t. kNoHandle: NCCL makes no such
// registration here, which is no error.
using Vote = uint8_t;
constexpr Vote kPending = 0, kMade = 1, kNoHandle = 2, kFailed = 3;

// What the votes of all ranks mean for each of them.
struct Verdict {
  bool is_over = false;  // no rank needs to wait any longer
  bool is_made = false;
  int failed = -1;  // the first rank that failed, or -1
  ncclResult_t why = ncclSuccess;
};
Verdict verdict_of(std::span<const Vote> votes);

class Registrations {
 public:
  // Buffers that are registered together.
  struct Batch {
    ncclComm_t comm = nullptr;
    Registered how = Registered::none;
    std::vector<void*> data, handles;
  };

  explicit Registrations(std::shared_ptr<RegisteredMemory> memory) : memory_(std::move(memory)) {}

  // Begins to register the batch in the given way, without waiting. NCCL may write the handles until the
  // communicator is ready for the next call. The caller then calls keep() or undo(), as the votes of all
  // ranks say, or leave() if it is going to abort the communicator.
  Vote begin(Batch& batch, Registered how);
  // Waits for the end of this rank's part, but at most so long. Both throw GANG if NCCL says that a peer has
  // failed.
  static Vote look(const Batch& batch, std::chrono::milliseconds longest);
  // Returns whether windows of ranks on so many hosts are no more than registrations by ncclCommRegister.
  static bool windows_are_plain(int hosts);
  // Before 2.28 NCCL never uses the addresses of a window again, and a communicator has as many as the GPU
  // has bytes of memory. A window beyond them breaks it.
  static bool window_space_shrinks();
  bool window_space_lasts(const Batch& batch) const;
  void undo(Batch& batch) const noexcept;
  static void leave(Batch& batch);
  void keep(const Batch& batch);

  // The buffers that are registered, of all batches. Each one ends by itself, because an export may hold
  // another buffer of its batch for long.
  size_t count() const { return kept_.size(); }
  bool is_freed(size_t one) const;
  void end(const std::vector<bool>& marked) noexcept;  // those that are marked, in order
  void end(ncclComm_t comm) noexcept;                  // those of a communicator, before it is finalized
  // Forgets those of a communicator that is aborted: NCCL ends them itself, after its kernels.
  void forget(ncclComm_t comm) noexcept;

 private:
  struct Kept {
    ncclComm_t comm;
    Registered how;
    void *data, *handle;
  };
  static Vote vote_of(const Batch& batch, ncclResult_t state);
  static void remove(ncclComm_t comm, Registered how, void* handle) noexcept;
  // Returns the address space that the communicator has used up when the batch is in windows.
  size_t window_space_after(const Batch& batch) const;
  void end(const Kept& one) noexcept;

  const std::shared_ptr<RegisteredMemory> memory_;
  std::vector<Kept> kept_;
  std::map<ncclComm_t, size_t> window_space_;  // used up; of communicators that have had windows
};

}  // namespace gangway::nccl
