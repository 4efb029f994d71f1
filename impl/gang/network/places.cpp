#include "gang/network/places.h"

#include <unistd.h>

#include <array>
#include <cstring>

#include "base/config.h"
#include "base/interrupt.h"
#include "base/loadable.h"
#include "base/refusal.h"
#include "gang/network/host_memory.h"
#include "gang/rendezvous/resolve.h"
#include "gang/rendezvous/store_common.h"

namespace gangway::network {
namespace {

const char* const kAttempt = "network/attempt";

template <size_t kSize>
void put_text(char (&to)[kSize], const std::string& text) {
  text.copy(to, kSize - 1);
}

Place read_place(const std::string& bytes) {
  Place place;
  if (bytes.size() != sizeof place)
    fail(Code::invalid_state, "gang.create: a rank says its place in ", bytes.size(), " bytes, not ",
         sizeof place, "; start all ranks with the same library");
  std::memcpy(&place, bytes.data(), sizeof place);
  place.address[63] = place.server[63] = place.host_name[63] = 0;
  place.wire[sizeof place.wire - 1] = 0;
  if (place.fabric_bytes < 0 || place.fabric_bytes > static_cast<int32_t>(sizeof place.fabric))
    place.fabric_bytes = 0;
  return place;
}

std::string bytes_of(const Place& place) { return {reinterpret_cast<const char*>(&place), sizeof place}; }

bool same_host(const Place& a, const Place& b) {
  return std::memcmp(a.identity.host, b.identity.host, sizeof a.identity.host) == 0;
}

}  // namespace

Meeting::Meeting(std::shared_ptr<Store> store, const EngineOptions& options, Deadline deadline)
    : store_(std::move(store)), options_(options), deadline_(deadline), facts_(store_->facts()) {
  say_who();
}

Meeting::Meeting(GatherBytes gather, const EngineOptions& options, Deadline deadline)
    : gather_(gather), options_(options), deadline_(deadline), facts_{.spans_hosts = true} {
  say_who();
}

void Meeting::say_who() {
  mine_.identity = own_identity();
  std::array<uint8_t, sizeof mine_.process> random{};
  random_bytes(random);
  std::memcpy(&mine_.process, random.data(), random.size());
  mine_.liveness_ms = options_.liveness_ms;
  mine_.rank = options_.rank;
  mine_.size = options_.size;
  mine_.pid = getpid();
  random_bytes(mine_.memory_name);
  random_bytes(mine_.memory_token);
  gethostname(mine_.host_name, sizeof mine_.host_name - 1);  // it stays empty if that fails
}

// The address is that of the connection to rank 0, where there is one and it is no loopback.
void Meeting::open_listener() {
  const std::string& wish = config().interface;
  std::string address = facts_.spans_hosts ? facts_.own_address : "127.0.0.1";
  if (!wish.empty()) {
    address = interface_address(wish);
    if (address == "0.0.0.0" || address == "::") address.clear();
  } else if (facts_.spans_hosts) {
    if (address.empty()) address = first_address();
    if (is_loopback_number(address)) address.clear();
  }
  listener_ = listen_at(address, text(wish.empty() ? "network" : "GANGWAY_INTERFACE", ": rank ",
                                      options_.rank, " on ", mine_.host_name));
  mine_.port = listener_.port;
  put_text(mine_.address, address);
  put_text(mine_.server, facts_.server_address);
  memory_door_ = open_memory_door(mine_);
  put_text(mine_.wire, "sockets");
  if (facts_.spans_hosts && config().wire == "fabric")
    open_fabric(address.empty() ? first_address() : address);
}

void Meeting::open_fabric(const std::string& address) {
  Loadable library("GANGWAY_WIRE", "libgangway_fabric.so", "gangway_fabric_module");
  library.keep(/*global=*/false);
  fabric_ = static_cast<const FabricModule*>(library.table())->open(address, options_.size);
  const std::string& bytes = fabric_->address();
  if (bytes.size() > sizeof mine_.fabric)
    fail(Code::not_supported, "GANGWAY_WIRE: addresses of libfabric's provider ", fabric_->provider(),
         " have ", bytes.size(), " bytes, more than ", sizeof mine_.fabric);
  bytes.copy(mine_.fabric, bytes.size());
  mine_.fabric_bytes = static_cast<int32_t>(bytes.size());
  put_text(mine_.wire, "libfabric " + fabric_->provider());
}

void Meeting::exchange() {
  if (gather_ != nullptr) {
    exchange_by_gather();
  } else if (options_.rank == 0) {
    exchange_as_first();
  } else {
    exchange_as_other();
  }
  check_places();
}

void Meeting::exchange_as_first() {
  std::array<uint8_t, 32> random{};
  random_bytes(random);
  attempt_ = as_text(random);
  store_->put(kAttempt, attempt_);
  open_listener();
  places_ = {mine_};
  for (int r = 1; r < options_.size; ++r) places_.push_back(wait_for_place(r));
  std::string all;
  for (const Place& place : places_) all += bytes_of(place);
  store_->put(key("all"), all);
}

// A rank that cannot listen takes part too, because the others would wait for it inside the exchange.
void Meeting::exchange_by_gather() {
  struct Record {
    Place place;
    std::array<uint8_t, 32> attempt;
    int32_t code;
    char refusal[300];
  };
  Record record{};
  if (const auto refusal = error_thrown_by([&] { open_listener(); })) {
    record.code = static_cast<int32_t>(refusal->code());
    refusal->message().copy(record.refusal, sizeof record.refusal - 1);
  }
  random_bytes(record.attempt);
  record.place = mine_;
  std::vector<Record> all(static_cast<size_t>(options_.size));
  gather_(&record, sizeof record, all.data());
  for (const Record& one : all) {
    if (one.code != 0) throw Error(static_cast<Code>(one.code), one.refusal);
    places_.push_back(one.place);
  }
  attempt_ = as_text(all[0].attempt);
}

// A store that outlives jobs may still hold an earlier attempt, which rank 0 replaces.
void Meeting::exchange_as_other() {
  StoreBackoff backoff(deadline_);
  for (;;) {
    check();
    std::optional<std::string> attempt = store_->get(kAttempt);
    if (!attempt) attempt = wait_briefly(kAttempt);
    if (!attempt) continue;
    if (*attempt != attempt_) {
      attempt_ = *attempt;
      if (!listener_.socket) open_listener();  // from here on give_up() reaches the others
      store_->put(key(text("place/", options_.rank)), bytes_of(mine_));
    }
    const std::optional<std::string> all = wait_briefly(key("all"));
    if (!all) continue;
    if (all->size() != sizeof(Place) * static_cast<size_t>(options_.size))
      fail(Code::invalid_argument, "gang.create: rank ", options_.rank, " was started as one of ",
           options_.size, " ranks, rank 0 as one of ", all->size() / sizeof(Place));
    std::vector<Place> places;
    for (int r = 0; r < options_.size; ++r)
      places.push_back(read_place(all->substr(static_cast<size_t>(r) * sizeof(Place), sizeof(Place))));
    if (places[static_cast<size_t>(options_.rank)].process == mine_.process) {
      places_ = std::move(places);
      return;
    }
    backoff.pause();
  }
}

std::optional<std::string> Meeting::wait_briefly(const std::string& name) {
  try {
    return store_->wait(name, Deadline::after_ms(deadline_.left_ms(kLookMs)));
  } catch (const Error& error) {
    if (error.code() != Code::timeout) throw;
    return std::nullopt;
  }
}

Place Meeting::wait_for_place(int rank) {
  for (;;) {
    if (const auto value = wait_briefly(key(text("place/", rank)))) return read_place(*value);
    if (deadline_.passed())
      fail(Code::timeout, "gang.create: rank ", rank, " did not come to the store in ", options_.timeout_ms,
           " ms", store_->refused());
    check();
  }
}

void Meeting::check() {
  poll_interrupt();
  if (store_ != nullptr && !attempt_.empty())
    if (const auto why = store_->get(key("failed"))) fail(Code::gang, "gang.create: ", *why);
  if (deadline_.passed())
    fail(Code::timeout, "gang.create: the ranks did not meet in ", options_.timeout_ms, " ms",
         store_ == nullptr ? "" : store_->refused());
}

void Meeting::give_up(const Error& error) noexcept {
  if (store_ == nullptr || attempt_.empty() || error.code() == Code::gang || error.code() == Code::timeout)
    return;
  try {
    store_->put(
        key("failed"),
        text("rank ", options_.rank, " on ", mine_.host_name, " failed: ", error.message()).substr(0, 2000));
  } catch (...) {  // the store has ended, which the others notice
  }
}

void Meeting::check_places() const {
  std::vector<RankIdentity> identities;
  for (const Place& place : places_) identities.push_back(place.identity);
  static_cast<void>(gangway::on_one_host(identities));  // refuses ranks of several builds
  for (size_t r = 0; r < places_.size(); ++r) {
    if (places_[r].rank != static_cast<int>(r) || places_[r].size != options_.size)
      fail(Code::invalid_argument, "gang.create: rank ", r, " was started as rank ", places_[r].rank, " of ",
           places_[r].size, ", not of ", options_.size);
    if (places_[r].liveness_ms != places_[0].liveness_ms)
      fail(Code::invalid_argument, "gang.create: rank ", r, " says liveness_ms ", places_[r].liveness_ms,
           ", rank 0 says ", places_[0].liveness_ms);
    if (std::strcmp(places_[r].wire, places_[0].wire) != 0)
      fail(Code::invalid_argument, "gang.create: rank ", r, " moves data between hosts by ", places_[r].wire,
           ", rank 0 by ", places_[0].wire,
           "; give GANGWAY_WIRE and FI_PROVIDER the same values on every rank");
  }
}

bool Meeting::on_one_host() const {
  std::vector<RankIdentity> identities;
  for (const Place& place : places_) identities.push_back(place.identity);
  return gangway::on_one_host(identities);
}

std::vector<int> Meeting::hosts() const {
  std::vector<int> hosts;
  for (const Place& place : places_) {
    int first = 0;
    while (!same_host(places_[static_cast<size_t>(first)], place)) ++first;
    hosts.push_back(first);
  }
  return hosts;
}

std::string Meeting::address_of(int rank) const {
  const Place& its = places_[static_cast<size_t>(rank)];
  const std::string address = its.address;
  if (same_host(its, mine_)) return address.empty() ? "127.0.0.1" : address;
  const auto is_reached = [](const std::string& number) {
    return !number.empty() && !is_loopback_number(number);
  };
  if (is_reached(address)) return address;
  // A rank without an address listens at every address of its host. Another rank of that host may know one,
  // and the ranks elsewhere know that of rank 0's host.
  if (address.empty())
    for (const Place& other : places_) {
      if (same_host(other, its) && is_reached(other.address)) return other.address;
      if (same_host(places_[0], its) && is_reached(other.server)) return other.server;
    }
  fail(Code::invalid_argument, "gang.create: ", name_of(rank), " listens at ",
       address.empty() ? "no address that is known" : address,
       ", which other hosts do not reach; set GANGWAY_INTERFACE on its host to an address that they reach");
}

std::string Meeting::fabric_address_of(int rank) const {
  const Place& its = places_[static_cast<size_t>(rank)];
  return {its.fabric, static_cast<size_t>(its.fabric_bytes)};
}

std::string Meeting::name_of(int rank) const {
  return text("rank ", rank, " on ", places_[static_cast<size_t>(rank)].host_name);
}

Secret Meeting::pair_key() const {
  const Secret store_key = facts_.key ? *facts_.key : Secret();
  return Secret(hmac_sha256(store_key, {"network", attempt_}));
}

void Meeting::clean_up() noexcept {
  if (store_ == nullptr) return;
  try {
    store_->remove(key(text("place/", options_.rank)));
    if (options_.rank != 0) return;
    store_->remove(kAttempt);
    store_->remove(key("all"));
  } catch (...) {  // the store may have ended with rank 0
  }
}

}  // namespace gangway::network
