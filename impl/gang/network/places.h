// Where the ranks of a gang run and listen: what each of them puts into the store, and learns of the others.
//
// Thread rule: values, and calls that block on the store.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "gang/descriptor.h"
#include "gang/engine_options.h"
#include "gang/fabric_module.h"
#include "gang/network/sockets.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/identity.h"
#include "gang/rendezvous/store.h"

namespace gangway::network {

// Ranks of other builds read it too, so the identity comes first.
struct Place {
  RankIdentity identity{};
  uint64_t process = 0;  // random: tells this start of the rank from every other
  int64_t liveness_ms = 0;
  int32_t rank = 0, size = 0;
  int32_t port = 0;         // where the rank listens for its peers
  int32_t pid = 0;          // in the PID namespace of its host
  char address[64] = {};    // a number; empty: it listens at every address, and peers find one
  char server[64] = {};     // the address at which the rank has reached rank 0
  char host_name[64] = {};  // for texts
  // Random: where the rank hands out its host's memory, and to whom (host_memory.h).
  uint8_t memory_name[16] = {}, memory_token[32] = {};
  char wire[48] = {};    // what moves the data between hosts: "sockets", or "libfabric" and its provider
  char fabric[96] = {};  // the address of the rank's fabric
  int32_t fabric_bytes = 0;
  int32_t zero = 0;
};

// Puts the `bytes` bytes of every rank one after another into `all`. Collective, and trusted.
using GatherBytes = void (*)(const void* mine, size_t bytes, void* all);

// The start of a gang: one attempt of its ranks to meet, at a store or by an exchange of a launcher that has
// connected them. Without a store a rank that fails cannot tell the others.
class Meeting {
 public:
  Meeting(std::shared_ptr<Store> store, const EngineOptions& options, Deadline deadline);
  Meeting(GatherBytes gather, const EngineOptions& options, Deadline deadline);

  // Opens the socket at which this rank listens, and exchanges places. Collective. If it throws, the caller
  // calls give_up(), and the others fail with the same text.
  void exchange();
  // Tells the other ranks that this one has failed.
  void give_up(const Error& error) noexcept;
  // Throws if another rank has given up, or if the deadline has passed.
  void check();

  bool on_one_host() const;
  const std::vector<Place>& places() const { return places_; }
  // For each rank the lowest rank of its host.
  std::vector<int> hosts() const;
  // The address at which this rank reaches a peer. INVALID_ARGUMENT: it has none but a loopback.
  std::string address_of(int rank) const;
  std::string name_of(int rank) const;  // "rank 1 on node7"
  std::string fabric_address_of(int rank) const;
  std::unique_ptr<Fabric> take_fabric() { return std::move(fabric_); }  // null: data go over sockets
  Secret pair_key() const;
  std::string attempt() const { return hex(as_bytes(attempt_)); }
  Listener take_listener() { return std::move(listener_); }
  Descriptor take_memory_door() { return std::move(memory_door_); }
  Deadline deadline() const { return deadline_; }
  void clean_up() noexcept;  // removes what this rank has put; when all have met

 private:
  static std::span<const uint8_t> as_bytes(const std::string& bytes) {
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  void open_listener();
  void open_fabric(const std::string& address);
  void exchange_as_first();  // the part of rank 0
  void exchange_as_other();
  void exchange_by_gather();
  void say_who();
  std::string key(const std::string& what) const { return "network/" + attempt() + "/" + what; }
  Place wait_for_place(int rank);
  std::optional<std::string> wait_briefly(const std::string& name);
  void check_places() const;

  const std::shared_ptr<Store> store_;  // null: the ranks meet by gather_
  const GatherBytes gather_ = nullptr;
  const EngineOptions options_;
  const Deadline deadline_;
  const StoreFacts facts_;
  std::string attempt_;  // 32 random bytes of rank 0
  Listener listener_;
  Descriptor memory_door_;
  std::unique_ptr<Fabric> fabric_;
  Place mine_;
  std::vector<Place> places_;
};

}  // namespace gangway::network
