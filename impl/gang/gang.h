// The gang layer. Belongs here: records of collectives, gangs, works, engines, and how ranks find each other
// (stores, secrets, launchers). Does not belong here: named axes (mesh), and what is moved for which purpose
// (parallel).
//
// A gang is a group of ranks that act together, with the engine that moves their bytes. It checks every
// collective once, before anything moves; engines trust it.
//
// Thread rule: several threads may call collectives of one gang. The calls of one channel run one after
// another, because each holds the channel's lock. abort() from any thread. Destruction never blocks and is
// never collective.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gang/abort_request.h"
#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"
#include "gang/rendezvous/store.h"

namespace gangway {

struct GangOptions {
  std::string device = "cpu";
  std::string engine = "auto";
  int64_t timeout_ms = 0;  // 0: as Config::timeout_ms says
  int64_t liveness_ms = 0;
  bool high_priority = false;
  int expected_size = 0;  // 0: as Config says
  // Threads of the rank's pool. 0: as Config says, else the cores divided by the local ranks.
  int threads = 0;
  uint64_t arena_bytes = 0;
  uint64_t memory_limit = 0;
  // The rank and size, if they do not come from the environment: rank >= 0 with a size, and a store or an id.
  int rank = -1;
  int size = 0;
  std::shared_ptr<Store> store;
  std::string id;  // of kIdBytes, see gang/rendezvous/startup.h
  std::string name = "gang";
};

class Agreement;

class Gang : public std::enable_shared_from_this<Gang> {
 public:
  // --- making gangs ---
  // Creates a root gang. Collective. Rank and size come from the options, else from the environment. If
  // neither has them, the gang has one rank and the self engine.
  static std::shared_ptr<Gang> create(const GangOptions& options);
  // Local: makes `count` root gangs, one for each thread, with the engine "threads".
  static std::vector<std::shared_ptr<Gang>> create_threads(int count, const GangOptions& options);
  // Local: makes a root gang over an engine that was made elsewhere.
  static std::shared_ptr<Gang> over(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine,
                                    const GangOptions& options);
  // Creates a root gang with the fake engine. Local. INVALID_ARGUMENT, checked in this order: size < 1, a
  // rank outside of the gang, a meta device (only if `refuse_meta`).
  static std::shared_ptr<Gang> create_fake(int rank, int size, const GangOptions& options, bool record,
                                           bool refuse_meta = true);

  // Creates a gang of the listed ranks, in that order. Returns null on a rank that is not in the list.
  // Collective over this gang; all ranks agree on a refusal. INVALID_ARGUMENT: duplicates, ranks outside of
  // [0, size), an empty list.
  std::shared_ptr<Gang> create_gang(std::span<const int> ranks, const std::string& name = "");
  // Creates one gang for each color. A color < 0 gives null. A new gang orders its ranks by key, then by
  // rank. Collective.
  std::shared_ptr<Gang> split(int color, int key, const std::string& name = "");
  // Collective: makes a gang of the same members with separate traffic.
  std::shared_ptr<Gang> duplicate(const std::string& name = "");
  // Local: makes a gang of this rank alone, with the self engine; a fake gang stays fake.
  std::shared_ptr<Gang> alone(const std::string& name = "");

  // --- facts ---
  int rank() const { return own_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const char* engine_name() const { return engine_->name(); }
  // Returns false if no other rank has data of its own: a gang of one, or a fake gang.
  bool has_peers() const { return engine_->facts().has_peers; }
  Device& device() const { return rank_->device(); }
  const std::shared_ptr<Rank>& owner() const { return rank_; }
  // members()[i] is rank i's rank in the root gang.
  const std::vector<int>& members() const { return members_; }
  bool is_root() const { return is_root_; }  // true also for the gang that shrink made of a root
  Engine& engine() const { return *engine_; }
  bool is_shut_down() const { return shut_down_; }
  AbortThread& abort_thread() const { return *abort_thread_; }

  // --- collectives ---
  // Checks every record, then starts them as one launch; all collectives go through here. A null `stream`
  // means the rank's own. Channel::control moves values in host memory over the control engine
  // (Engine::control), whatever the stream is; the other channels move memory of the device.
  WorkPtr run(Channel channel, std::span<const Collective> records, Stream* stream = nullptr);
  WorkPtr run(Channel channel, const Collective& record, Stream* stream = nullptr) {
    return run(channel, std::span<const Collective>(&record, 1), stream);
  }
  // Returns the next message from `peer` that no receive has asked for. Local; never waits.
  std::optional<Message> probe(Channel channel, int peer);
  // Calls run(), and waits until the output is ready and the input is free. An interrupt breaks the gang: the
  // caller owns its memory again when the call returns, so nothing may go on using it.
  void run_now(Channel channel, std::span<const Collective> records, Stream* stream = nullptr);
  void run_now(Channel channel, const Collective& record, Stream* stream = nullptr) {
    run_now(channel, std::span<const Collective>(&record, 1), stream);
  }

  void barrier(Channel channel = Channel::control);
  // Makes the communicator of a channel. Collective; calls on other channels may run at the same time. A
  // device engine otherwise makes it in the channel's first call, which waits for all ranks, so open a
  // channel first if only some ranks will send and receive on it.
  void open(Channel channel);
  // Exchanges of small values between the ranks (gang/agreement.h).
  Agreement agreement();

  // Runs `step`, which is part of a call that peers wait for. If it runs out of memory, the gang breaks, so
  // that the peers do not wait forever.
  template <typename Step>
  auto in_mid_call(Step&& step) {
    try {
      return step();
    } catch (const std::bad_alloc&) {
      if (size() > 1) abort(Error(Code::out_of_memory, "no memory"));
      throw;
    }
  }

  // --- memory ---
  // Returns the allocator of memory that peers access directly if the ranks share memory, else the device's
  // own.
  std::shared_ptr<Allocator> allocator() const;
  // Null if the ranks share no memory, because they are not all on one host or because the engine has none.
  SharedMemory* shared_memory() const { return engine_->shared_memory(); }
  SharedRegion allocate_shared(size_t bytes);  // collective; NOT_SUPPORTED without shared memory
  // Memory that the engine moves with fewer copies once it is registered. Engine has the contracts.
  std::shared_ptr<Allocator> registrable() const { return engine_->registrable(); }
  void register_memory(Channel channel, std::span<const std::shared_ptr<Buffer>> buffers, size_t sums);
  void release_memory();
  bool is_registered(const void* data) const { return engine_->is_registered(data); }

  // --- end ---
  void shutdown(int64_t timeout_ms);  // collective, orderly; later calls are INVALID_STATE
  // Breaks the gang here and on its peers. Local, any thread, also in a signal handler: calls that begin
  // after this one find the gang broken, and waits end soon after.
  void abort(const char* reason);
  // Like abort(reason), but does not wait until peers were told.
  void request_abort(const char* reason) noexcept;
  void abort(const Error& error) noexcept;  // at once; not in a signal handler
  std::optional<Error> error() const;       // why the gang is broken
  // Makes a gang of the living ranks among `survivors`, in this order, from a broken gang. A rank that is
  // lost before all have made the call is left out.
  std::shared_ptr<Gang> shrink(std::span<const int> survivors);

  Traffic traffic() const { return engine_->traffic(); }
  std::vector<FlightEntry> flight_record() const { return engine_->flight_record(); }

 private:
  friend class Agreement;
  Gang(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine, const EngineOptions& options,
       std::vector<int> members, bool is_root);
  static std::shared_ptr<Gang> make(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine,
                                    const EngineOptions& options, std::vector<int> members,
                                    bool is_root = true);
  // Makes a gang of `ranks` in that order. The list has been checked and is equal on all ranks.
  std::shared_ptr<Gang> make_child(std::span<const int> ranks, const std::string& name);
  std::string child_name(const std::string& name);
  // Runs one collective on values in host memory, over the control engine on any channel.
  void run_host(Channel channel, const Collective& record);
  WorkPtr start_host(Channel channel, const Collective& record);
  WorkPtr start(Engine& engine, Channel channel, std::span<const Collective> records, Stream& stream);
  void block_on(Engine& engine, Channel channel, std::span<const Collective> records, Stream& stream);
  void check(Channel channel, const Collective& record) const;
  void check_usable(const char* call) const;
  void check_records(Channel channel, std::span<const Collective> records, const Stream* stream) const;
  // Makes all checks before a launch.
  void admit(Channel channel, std::span<const Collective> records, const Stream* stream) const;
  // Runs `call`. If its Error has no place yet, the error gets this gang's name, the rank and the call's
  // name.
  template <typename Call>
  decltype(auto) named(const char* op, Call&& call) const {
    try {
      return call();
    } catch (Error& error) {
      place(error, op, -1);
      throw;
    }
  }
  template <typename Call>
  decltype(auto) named(std::span<const Collective> records, Call&& call) const {
    try {
      return call();
    } catch (Error& error) {
      place(error, records);
      throw;
    }
  }
  void place(Error& error, const char* op, int peer) const;
  void place(Error& error, std::span<const Collective> records) const;
  // Runs a set-up call of all ranks.
  template <typename Call>
  auto collective(const char* name, Call&& call) {
    return named(name, [&] {
      check_usable(name);
      return in_mid_call(call);
    });
  }

  std::shared_ptr<AbortThread> abort_thread_;
  std::shared_ptr<Rank> rank_;
  std::shared_ptr<Engine> engine_;
  Engine& control_;
  const int own_, size_;   // rank and size, copied from the engine because every call needs them
  EngineOptions options_;  // child gangs inherit them
  std::vector<int> members_;
  std::string name_;
  const bool is_root_;
  // Recursive, because a call of several collectives (sizes, then bytes) holds the lock over all of them.
  std::array<std::recursive_mutex, kChannels> channel_mutex_;
  std::atomic<bool> shut_down_ = false;
  std::atomic<uint64_t> children_ = 0;
  AbortRequest abort_request_;
};

using GangPtr = std::shared_ptr<Gang>;

}  // namespace gangway
