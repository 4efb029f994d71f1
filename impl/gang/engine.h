// What moves bytes between ranks. An engine trusts its caller: every check of shape, dtype, rank and buffers is made
// once, in gang.cpp.
//
// Implementations: self (one rank), fake (any rank and size, no peers), host (shared memory; ranks are processes or
// threads). Registered by name in registry.h. What engines differ in is said by facts() and shared_memory(), never by
// their names.
//
// Thread rule: run() is called by one thread at a time per channel; abort() from any thread.
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

// Keeps the first error of several. Without memory for its words its code stays.
inline void keep_first(std::optional<Error>& place, const Error& error) noexcept {
  if (place) return;
  try {
    place = error;
  } catch (const std::bad_alloc&) {
    place.emplace(error.code(), "no memory");  // short enough to need none
  }
}

// One region of memory that all ranks of a gang on one host see. Zeroed at creation.
struct SharedRegion {
  std::shared_ptr<Buffer> writable;
  // The same pages mapped read-only (processes), or the same mapping flagged read-only (threads).
  std::shared_ptr<Buffer> readable;
};

// Counters of everything a gang's engine moved, for tests and reports. Bytes are payload read from peers.
struct Traffic {
  uint64_t calls = 0;
  uint64_t bytes_moved = 0;   // total payload that this rank read from other ranks' memory or received
  uint64_t bytes_staged = 0;  // of its own payload, copied into a staging area first (not arena memory)
};

// One entry of the ring of last collectives.
struct FlightEntry {
  uint64_t sequence = 0;
  Channel channel = Channel::user;
  CollectiveOp op = CollectiveOp::barrier;
  uint64_t bytes = 0;
  int64_t start_ns = 0;  // since the gang was made
  int64_t end_ns = -1;   // -1: not ended
  std::string state;     // "done", "waiting for ranks 1, 3", "failed: ..."
};

// A message that a peer has sent and no receive has asked for.
struct Message {
  size_t count = 0;  // elements
  DType dtype = DType::f32;
};

// What an engine does, beyond the calls that all of them answer.
struct EngineFacts {
  // Other ranks hold data of their own. False: every result is made from this rank's data (self, fake).
  bool has_peers = true;
  // Sums and products are left folds in rank order: the same bits on every rank and in every run.
  bool folds_in_rank_order = true;
  bool moves_host_memory = true;
  bool moves_device_memory = false;
  // Records that it takes as they are; the others are made of these (lowering.h).
  bool takes_counts =
      true;  // per rank; without: sends and receives of a channel keep the order of its other calls
  bool takes_accumulate = true;
  bool takes_mean = true;
  bool takes_narrow_reductions = true;  // bf16 and f16, with an f32 accumulator
  bool takes_batches = true;            // several records in one launch
  // Names wrong calls, lost peers and passed deadlines itself. Else its calls are announced on a control engine first
  // (dual_engine.h).
  bool detects_failures = true;
  // abort() ends a call in flight, so calls may start before the others are known to have come. Else a call starts when
  // all notes are here.
  bool aborts_in_flight = true;
  // A send of two ranks goes over a communicator that all ranks have opened (Engine::open).
  bool opens_for_pairs = false;
};

// Memory that all ranks of an engine reach directly, and counters in it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;

  // Memory that peers reach directly. Local call; blocks may be freed in any order, from any thread, after the engine.
  virtual std::shared_ptr<Allocator> allocator() = 0;
  // Collective: one zeroed region, the same size on every rank. Freed when the last rank's buffers are.
  virtual SharedRegion allocate(size_t bytes) = 0;

  // Counters in shared regions. publish() stores with release order and wakes waiters; wait() blocks until *counter >=
  // at_least, with acquire order. `owner` is the rank that publishes; `what` names the wait in errors. A channel wait:
  // gang deadline, interrupt, PEER_LOST.
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
  // The engine of the same ranks that carries values of the host: verdicts, sizes, names. Itself where it can.
  virtual Engine& control() { return *this; }

  // Collective: comes before the first collective of a channel where calls are announced (EngineFacts), so that a
  // communicator can be made for it. All ranks are here.
  virtual void open(Channel) {}
  // Starts all records of the span as one launch, in order, on the channel, after what `stream` holds so far. Never
  // waits for peers. A span of sends and receives cannot deadlock. Throws the engine's first error when it is broken.
  virtual WorkPtr run(Channel channel, std::span<const Collective> span, Stream& stream) = 0;
  // The same for a caller who will block on both ends: an engine may be quicker than a work allows. Null: both ends are
  // reached. Else what is left to wait for.
  virtual WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) {
    return run(channel, span, stream);
  }

  // The next message from `peer` on the channel that no receive of this rank has asked for; nothing: none has come. Moves
  // outstanding calls on, never waits. Throws the engine's first error when it is broken.
  virtual std::optional<Message> probe(Channel, int /*peer*/) {
    fail(Code::not_supported, "gang.probe: engine \"", name(), "\" cannot tell what a peer has sent");
  }

  // Engine of a subset. Collective over this engine (control channel). `ranks` are ranks of this engine in the new order;
  // null for a rank that is not in it. Equal members in equal order: may share everything but the abort state.
  virtual std::shared_ptr<Engine> create(std::span<const int> ranks) = 0;

  // Breaks the engine here and, where it can, on its peers; wakes every waiter. The first error stays.
  virtual void abort(const Error& error) noexcept = 0;
  virtual std::optional<Error> error() const = 0;
  // Collective and orderly: waits for all ranks, then marks a clean leave.
  virtual void shutdown(Deadline deadline) = 0;
  // Engine of the survivors of a broken one (ranks of this engine, the same list on each), once peers no longer touch
  // this rank's memory. A rank that is lost meanwhile is left out: `survivors` becomes those of the new engine.
  virtual std::shared_ptr<Engine> shrink(std::vector<int>& survivors) = 0;
  // The same for a data engine. It was aborted on every survivor, and they have met: `control` is their new control engine.
  virtual std::shared_ptr<Engine> shrink_over(const std::shared_ptr<Engine>& control,
                                              std::vector<int>& survivors) {
    static_cast<void>(control);
    return shrink(survivors);
  }

  virtual Traffic traffic() const = 0;
  virtual std::vector<FlightEntry> flight_record() const = 0;
};

}  // namespace gangway
