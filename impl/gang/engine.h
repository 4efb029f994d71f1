// An engine moves bytes between ranks. It trusts its caller: gang_check.cpp checks shapes, dtypes, ranks and
// buffers once.
//
// Implementations: self (one rank), fake (any size, without peers), host (shared memory; ranks are processes
// or threads), MPI and NCCL. registry.h has them by name. Callers ask facts() and shared_memory() for the
// differences between engines, never the name.
//
// Thread rule: one thread at a time calls run() on a channel; abort() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/collective.h"
#include "gang/work.h"
#include "tensor/tensor.h"

namespace gangway {

// Stores `error` unless an earlier error is stored. If there is no memory for the text, it stores the code
// alone.
inline void keep_first(std::optional<Error>& place, const Error& error) noexcept {
  if (place) return;
  try {
    place = error;
  } catch (const std::bad_alloc&) {
    place.emplace(error.code(), "no memory");  // a text so short that it needs no allocation
  }
}

// A region of memory that all ranks of a gang on one host access. It is zeroed when it is allocated.
struct SharedRegion {
  std::shared_ptr<Buffer> writable;
  // The same pages, which the caller must not write: a read-only mapping if ranks are processes, the same
  // mapping if they are threads.
  std::shared_ptr<Buffer> readable;
};

// How much a gang's engine has moved, for tests and reports. Bytes are payload.
struct Traffic {
  uint64_t calls = 0;
  uint64_t bytes_moved = 0;   // read from other ranks' memory, or received
  uint64_t bytes_staged = 0;  // this rank's own payload that was first copied into a staging area
};

// One entry of the flight record, the ring of the last collectives.
struct FlightEntry {
  uint64_t sequence = 0;
  Channel channel = Channel::user;
  CollectiveOp op = CollectiveOp::barrier;
  uint64_t bytes = 0;
  int64_t start_ns = 0;  // since the gang was made
  int64_t end_ns = -1;   // -1: not ended
  std::string state;     // "done", "waiting for ranks 1, 3", "failed: ..."
};

// A message that a peer has sent and that no receive has asked for.
struct Message {
  size_t count = 0;  // elements
  DType dtype = DType::f32;
};

// The properties in which engines differ.
struct EngineFacts {
  // Other ranks have data of their own. False: every result is computed from this rank's data (self, fake).
  bool has_peers = true;
  // Sums and products are left folds in rank order, so they have the same bits on every rank and in every
  // run.
  bool folds_in_rank_order = true;
  bool moves_host_memory = true;
  bool moves_device_memory = false;
  // The five flags below name the records that the engine can run. Lowering turns all others into records
  // that it can run (planes/lowering.h).
  //
  // takes_counts: counts per rank. Without it, sends and receives keep their order among the channel's calls.
  bool takes_counts = true;
  bool takes_accumulate = true;
  bool takes_mean = true;
  bool takes_narrow_reductions = true;  // bf16 and f16, as precise as collective.h says
  bool takes_batches = true;            // several records in one launch
  // Collectives in flight on a channel have the results that they have one after another. Without it, the
  // dual engine starts a collective only when the earlier ones that share its memory have ended.
  bool runs_in_order = true;
  // The engine itself reports mismatched calls, lost peers and missed deadlines. Otherwise each call is first
  // announced on a control engine (planes/dual_engine.h).
  bool detects_failures = true;
  // abort() ends a call in flight, so a call may start before all ranks have announced it. Otherwise a call
  // starts only after all ranks have.
  bool aborts_in_flight = true;
  // Calls move only while they are polled, a piece with each poll.
  bool moves_when_polled = false;
  // A send between two ranks needs a communicator that all ranks have opened (Engine::open).
  bool opens_for_pairs = false;
};

// Memory that all ranks of an engine access directly, and counters in it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;

  // Returns the allocator of memory that peers access directly. Local. Blocks may be freed in any order, on
  // any thread, also after the engine was destroyed.
  virtual std::shared_ptr<Allocator> allocator() = 0;
  // Allocates one zeroed region, of the same size on every rank. Collective. The region is freed when all
  // ranks have released their buffers.
  virtual SharedRegion allocate(size_t bytes) = 0;

  // Counters in shared regions. publish() stores with release order and wakes waiters. wait() blocks until
  // *counter >= at_least, with acquire order; rank `owner` publishes, and `what` names the wait in errors.
  // Like a call, it throws at the gang's deadline, on an interrupt, or when a peer is lost (PEER_LOST).
  virtual void publish(std::atomic<uint64_t>& counter, uint64_t value) = 0;
  virtual void wait(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner, const char* what) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const char* name() const = 0;  // "self", "fake", "host", "threads"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual EngineFacts facts() const = 0;
  virtual void* native_handle() const { return nullptr; }    // ncclComm_t, MPI_Comm ...
  virtual SharedMemory* shared_memory() { return nullptr; }  // null: ranks share no memory
  // Returns the allocator of memory that register_memory() takes, or null if the engine registers none. It
  // gives small blocks plain memory. Local; ranks ask for equal blocks.
  virtual std::shared_ptr<Allocator> registrable() { return nullptr; }
  // Registers these buffers of registrable(), so that the channel's collectives move them with fewer copies.
  // Collective: every rank passes buffers of the same sizes in the same order. From then on every rank must
  // give a collective of the channel the same registered buffers at the same offsets, or none. Blocks that
  // are freed keep their memory until the next release_memory() or the end of the engine. `sums`: registers
  // so many bytes of the engine's own, too, for the outputs of one launch that accumulate.
  virtual void register_memory(Channel, std::span<const std::shared_ptr<Buffer>>, size_t /*sums*/) {}
  // Ends the registrations of buffers that all ranks have freed. Collective.
  virtual void release_memory() {}
  // Returns whether a block is registered. Local.
  virtual bool is_registered(const void*) const { return false; }
  // Returns the engine over the same ranks that exchanges values in host memory: results of checks, sizes,
  // names. An engine that can do so itself returns itself.
  virtual Engine& control() { return *this; }

  // Creates the communicator of a channel if the engine needs one. Collective. If calls are announced
  // (EngineFacts), it is called before the first collective of the channel.
  virtual void open(Channel) {}
  // Starts all records of the span as one launch, in order, after the work that `stream` holds so far. Never
  // waits for peers. A span of sends and receives cannot deadlock. Throws the engine's first error if it is
  // broken.
  virtual WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) = 0;
  // Like run, for a caller who will block until the output is ready and the input is free, which an engine
  // may do faster without a work. Returns null if both are so already, else a work to wait for.
  virtual WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) {
    return run(channel, span, stream);
  }

  // Returns the next message from `peer` on the channel that no receive of this rank has asked for, or
  // nothing if none has come. Drives outstanding calls and never waits. Throws the engine's first error if it
  // is broken.
  virtual std::optional<Message> probe(Channel, int /*peer*/) {
    fail(Code::not_supported, "gang.probe: engine \"", name(), "\" cannot tell what a peer has sent");
  }

  // Makes an engine over a subset of the ranks. Collective over this engine, on the control channel. `ranks`
  // are ranks of this engine in their new order; `label` names the new gang in errors. Returns null on a rank
  // that is not among them. Engines over the same ranks in the same order may share everything but the abort
  // state.
  virtual std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) = 0;

  // Breaks the engine here and, where possible, on its peers, and wakes every waiter. The first error stays.
  virtual void abort(const Error& error) noexcept = 0;
  virtual std::optional<Error> error() const = 0;
  // Collective and orderly: waits for all ranks, then marks a clean leave.
  virtual void shutdown(Deadline deadline) = 0;
  // Makes the engine of the survivors of a broken engine, once peers no longer touch this rank's memory. Each
  // survivor passes the same list of ranks of this engine. A rank that is lost meanwhile is left out:
  // `survivors` becomes the list of the new engine.
  virtual std::shared_ptr<Engine> shrink(std::vector<int>& survivors) = 0;
  // Like shrink, for a data engine, which has been aborted on every survivor. `control` is the new control
  // engine of the survivors.
  virtual std::shared_ptr<Engine> shrink_over(const std::shared_ptr<Engine>& control,
                                              std::vector<int>& survivors) {
    static_cast<void>(control);
    return shrink(survivors);
  }

  virtual Traffic traffic() const = 0;
  virtual std::vector<FlightEntry> flight_record() const = 0;
};

}  // namespace gangway
