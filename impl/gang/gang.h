// The gang layer. Belongs here: records of collectives, gangs, works, engines, and how ranks find each other (stores,
// secrets, launchers). Does not: named axes (mesh), what is moved and why (parallel).
//
// A gang: ranks that act together. Members + engine. Every check of a collective is made here, once, before
// anything moves; engines trust it.
//
// Thread rule: collectives on one gang from several threads run one by one in the order they come (a lock per
// channel, held for the call). abort() from any thread. Destruction never blocks and is never collective.
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

#include "base/refusal.h"
#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"
#include "gang/rendezvous/store.h"

namespace gangway {

struct GangOptions {
  std::string device = "cpu";
  std::string engine = "auto";
  int64_t timeout_ms = 0;  // 0: Config::timeout_ms
  int64_t liveness_ms = 0;
  bool high_priority = false;
  int expected_size = 0;  // 0: Config's
  int threads = 0;        // of the rank's pool; 0: Config's, else cores / local ranks
  uint64_t arena_bytes = 0;
  uint64_t memory_limit = 0;
  // Explicit place instead of the environment's: rank >= 0 with size and a store or an id.
  int rank = -1;
  int size = 0;
  std::shared_ptr<Store> store;
  std::string id;  // of kIdBytes, see gang/rendezvous/startup.h
  std::string name = "gang";
};

class Gang : public std::enable_shared_from_this<Gang> {
 public:
  // --- making gangs ---
  // Collective. The environment decides, unless the options do. Nothing set: one rank, self engine.
  static std::shared_ptr<Gang> create(const GangOptions& options);
  // Local: `count` root gangs, one for each thread. Engine "threads".
  static std::vector<std::shared_ptr<Gang>> create_threads(int count, const GangOptions& options);
  // Local: a root gang over an engine that was made elsewhere.
  static std::shared_ptr<Gang> over(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine,
                                    const GangOptions& options);
  // size < 1, rank outside, meta device are INVALID_ARGUMENT, in that order (meta only when `refuse_meta`).
  static std::shared_ptr<Gang> create_fake(int rank, int size, const GangOptions& options, bool record,
                                           bool refuse_meta = true);

  // Collective over this gang; refusals are agreed. Duplicates, then elements outside [0, size), an empty
  // list: INVALID_ARGUMENT. Null for a rank that is not in the list.
  std::shared_ptr<Gang> create_gang(std::span<const int> ranks, const std::string& name = "");
  // Collective. color < 0: null. Order by key, then rank.
  std::shared_ptr<Gang> split(int color, int key, const std::string& name = "");
  // Collective: the same members, private traffic.
  std::shared_ptr<Gang> duplicate(const std::string& name = "");
  // Local: a gang of this rank alone (self engine; a fake gang stays fake).
  std::shared_ptr<Gang> alone(const std::string& name = "");

  // --- facts ---
  int rank() const { return own_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const char* engine_name() const { return engine_->name(); }
  // False: no other rank holds data of its own (a gang of one, a fake gang).
  bool has_peers() const { return engine_->facts().has_peers; }
  Device& device() const { return rank_->device(); }
  const std::shared_ptr<Rank>& owner() const { return rank_; }
  // members()[i] is the rank in the root gang of rank i.
  const std::vector<int>& members() const { return members_; }
  bool is_root() const { return is_root_; }  // no part of another gang; what shrink left of a root is one
  Engine& engine() const { return *engine_; }
  bool is_shut_down() const { return shut_down_; }

  // --- collectives ---
  // The one entry: checks every record, then one launch. `stream` null: the rank's own. Channel::control moves values
  // of the host over the control engine (Engine::control), whatever the stream; the other channels move the device's.
  WorkPtr run(Channel channel, std::span<const Collective> records, Stream* stream = nullptr);
  WorkPtr run(Channel channel, const Collective& record, Stream* stream = nullptr) {
    return run(channel, std::span<const Collective>(&record, 1), stream);
  }
  // The next message from `peer` that no receive has asked for. Local, never waits.
  std::optional<Message> probe(Channel channel, int peer);
  // run, then wait for both ends. An interrupt breaks the gang: the caller's memory is its own again when the
  // call returns, so nothing may go on with it.
  void run_now(Channel channel, std::span<const Collective> records, Stream* stream = nullptr);
  void run_now(Channel channel, const Collective& record, Stream* stream = nullptr) {
    run_now(channel, std::span<const Collective>(&record, 1), stream);
  }

  // One value of the host on any channel, over the control engine, whatever the device is.
  void tell(Channel channel, const Collective& record);
  WorkPtr tell_later(Channel channel, const Collective& record);

  void barrier(Channel channel = Channel::control);
  // Collective, beside other channels' calls. An engine of devices makes the communicator of a channel in the channel's
  // first call, which waits for all ranks: open a channel on which only some of them will send and receive.
  void open(Channel channel);
  // Of here to agree: over the control engine on every channel.
  // Every rank's bytes, in rank order; sizes may differ.
  std::vector<std::string> all_gather_bytes(Channel channel, const std::string& mine);
  // `value` of `root` on every rank; the size travels with it.
  std::string broadcast_bytes(Channel channel, const std::string& value, int root);
  double all_sum(Channel channel, double value);
  // Ends a check phase: every rank passes its own refusal or nothing; all throw the first refusal (lowest
  // rank), with that rank's text, and the gang works on. Control channel. `arguments`, as text, must be
  // equal on all ranks: MISMATCH on all with both texts, if no rank refused; the gang works on then too.
  void agree(const std::optional<Error>& refusal, const std::string& arguments = "");
  // Runs `check` (local, throws an Error to refuse), then agrees.
  template <typename Check>
  void agree_on(Check&& check, const std::string& arguments = "") {
    agree(refusal_of(check), arguments);
  }

  // A collective call, or a step between two of them. Peers wait for this rank: want of memory breaks the
  // gang.
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
  // Memory that peers reach directly where the ranks share some, else the device's own.
  std::shared_ptr<Allocator> allocator() const;
  // Null: the ranks share no memory, because they are not all on one host or the engine has none.
  SharedMemory* shared_memory() const { return engine_->shared_memory(); }
  SharedRegion allocate_shared(size_t bytes);  // collective; NOT_SUPPORTED without shared memory

  // --- end ---
  void shutdown(int64_t timeout_ms);      // collective, orderly; later calls are INVALID_STATE
  void abort(const std::string& reason);  // local, any thread
  void abort(const Error& error) noexcept;
  std::optional<Error> error() const;  // why the gang is broken
  // Of a broken gang: those of `survivors` that live, in this order; a rank that is lost before all have come is passed
  // over.
  std::shared_ptr<Gang> shrink(std::span<const int> survivors);

  Traffic traffic() const { return engine_->traffic(); }
  std::vector<FlightEntry> flight_record() const { return engine_->flight_record(); }

 private:
  Gang(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine, const EngineOptions& options,
       std::vector<int> members, bool is_root);
  static std::shared_ptr<Gang> make(std::shared_ptr<Rank> rank, std::shared_ptr<Engine> engine,
                                    const EngineOptions& options, std::vector<int> members,
                                    bool is_root = true);
  // Every member of `ranks` in that order; the list is checked and equal on all ranks.
  std::shared_ptr<Gang> make_child(std::span<const int> ranks, const std::string& name);
  std::string child_name(const std::string& name);
  void vote(const std::optional<Error>& refusal, const std::string& arguments);
  WorkPtr start(Engine& engine, Channel channel, std::span<const Collective> records, Stream& stream);
  void block_on(Engine& engine, Channel channel, std::span<const Collective> records, Stream& stream);
  [[noreturn]] void throw_when_all_know(Error error);
  void check(Channel channel, const Collective& record) const;
  void check_usable(const char* call) const;
  void check_records(Channel channel, std::span<const Collective> records, const Stream* stream) const;
  // All checks before a launch.
  void admit(Channel channel, std::span<const Collective> records, const Stream* stream) const;
  // Runs `call`; an Error of it that has no place yet gets this gang's name, rank and the call's name.
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
  // A set-up call of all ranks.
  template <typename Call>
  auto collective(const char* name, Call&& call) {
    return named(name, [&] {
      check_usable(name);
      return in_mid_call(call);
    });
  }

  std::shared_ptr<Rank> rank_;
  std::shared_ptr<Engine> engine_;
  Engine& control_;
  const int own_, size_;   // the engine's, at hand for the checks of every call
  EngineOptions options_;  // what children inherit
  std::vector<int> members_;
  std::string name_;
  const bool is_root_;
  // Recursive: a call of several collectives (sizes, then bytes) holds it over all of them.
  std::array<std::recursive_mutex, kChannels> channel_mutex_;
  std::atomic<bool> shut_down_ = false;
  std::atomic<uint64_t> children_ = 0;
};

using GangPtr = std::shared_ptr<Gang>;

}  // namespace gangway
