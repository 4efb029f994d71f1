#include "gang_start.h"

#include <openssl/rand.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/config.h"
#include "base/line.h"
#include "gang/rendezvous/identity.h"

namespace gangway::capi {
namespace {

// The record that ranks exchange through the caller's all-gather: rank and size, the id that rank 0 made, or
// an error; on which host the rank is, and where rank 0's store listens if they are not on one.
struct RendezvousRecord {
  int32_t rank = -1, size = 0;
  int32_t code = 0;  // of the error; 0: there is none
  char id[kIdBytes] = {};
  int32_t port = 0;
  char address[48] = "";
  char host[64] = "";  // hash_of_network()
  char refusal[320] = "";
};
static_assert(sizeof(RendezvousRecord) == 512);

void refuse(RendezvousRecord& record, const Error& why) {
  record.code = static_cast<int32_t>(why.code());
  copy_line(record.refusal, sizeof record.refusal, why.message());
}

// The exchange of the records, which happens once. Every rank takes part, even a rank that is out of memory,
// because its peers cannot know that it failed and would wait for it.
class RendezvousExchange {
 public:
  RendezvousExchange(const gw_gang_options& o, const std::string& gang) : options_(o), gang_(gang) {}

  bool done() const { return done_; }
  // Valid after exchange(): the id that rank 0 made, and where its store listens; an empty host means that
  // all ranks are on one.
  std::string_view id() const { return {id_, kIdBytes}; }
  const std::string& host() const { return host_; }
  int port() const { return port_; }
  // Exchanges the records. Throws the first error (lowest rank).
  void exchange(const std::optional<Error>& refusal) {
    done_ = true;
    RendezvousRecord mine;
    mine.rank = options_.rank;
    mine.size = options_.size;
    const auto made = error_thrown_by([&] {
      say_place(mine);
      if (options_.rank == 0) make_id(mine.id);
    });
    if (refusal)
      refuse(mine, *refusal);
    else if (made)
      refuse(mine, *made);
    std::vector<RendezvousRecord> records;
    if (error_thrown_by([&] { records.resize(static_cast<size_t>(options_.size)); }))
      gather_without_memory(mine);
    else
      gather_records(mine, records.data());
  }

 private:
  void gather_records(const RendezvousRecord& mine, RendezvousRecord* records) {
    run_callback("all_gather", gang_,
                 [&] { return options_.all_gather(options_.user, &mine, sizeof mine, records); });
    for (int32_t r = 0; r < options_.size; ++r) {
      RendezvousRecord& record = records[r];
      if (record.rank != r || record.size != options_.size)
        fail(Code::invalid_argument, gang_, ": its all_gather callback gave rank ", r, " of ", options_.size,
             " the record of rank ", record.rank, " of ", record.size);
      record.refusal[sizeof record.refusal - 1] = '\0';
      if (record.code != 0) throw Error(static_cast<Code>(record.code), record.refusal);
    }
    std::memcpy(id_, records[0].id, kIdBytes);
    bool is_one_host = true;
    for (int32_t r = 1; r < options_.size; ++r)
      is_one_host = is_one_host && std::memcmp(records[r].host, records[0].host, sizeof mine.host) == 0;
    if (is_one_host) return;
    records[0].address[sizeof records[0].address - 1] = '\0';
    host_ = records[0].address;
    port_ = records[0].port;
    if (host_.empty())
      fail(Code::invalid_argument, gang_,
           ": its ranks are on several hosts, and that of rank 0 has no address that the others could reach; "
           "set GANGWAY_INTERFACE there");
  }

  void say_place(RendezvousRecord& mine) const {
    copy_line(mine.host, sizeof mine.host, hash_of_network());
    if (options_.rank != 0) return;
    StorePlace place;  // without one, ranks of one host still meet
    static_cast<void>(error_thrown_by([&] { place = place_for_store(); }));
    copy_line(mine.address, sizeof mine.address, place.address);
    mine.port = place.port;
  }

  // Uses the stack instead of the heap. It is not inlined, so that only this case takes so much stack.
  [[gnu::noinline]] void gather_without_memory(RendezvousRecord& mine) {
    constexpr int32_t kMost = 256;  // no engine supports more ranks
    if (options_.size > kMost) throw std::bad_alloc();
    if (mine.code == 0) {
      mine.code = static_cast<int32_t>(Code::out_of_memory);
      std::snprintf(mine.refusal, sizeof mine.refusal, "rank %d has no memory for the records of %d ranks",
                    static_cast<int>(mine.rank), static_cast<int>(mine.size));
    }
    RendezvousRecord records[kMost];
    gather_records(mine, records);
  }

  const gw_gang_options& options_;
  const std::string& gang_;
  bool done_ = false;
  std::string host_;
  int port_ = 0;
  char id_[kIdBytes] = {};
};

// A store that exchanges the records and connects by rank 0's id when it is first used. Gang::create uses its
// store only after the checks that a rank can make alone, such as that of the device, so that the exchange
// carries their errors.
class LazyStore final : public Store {
 public:
  LazyStore(const gw_gang_options& o, RendezvousExchange& rendezvous)
      : options_(o), rendezvous_(rendezvous) {}

  void put(const std::string& key, const std::string& value) override { store().put(key, value); }
  std::optional<std::string> get(const std::string& key) override { return store().get(key); }
  void remove(const std::string& key) override { store().remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override { return store().wait(key, deadline); }
  StoreFacts facts() const override { return store().facts(); }

 private:
  Store& store() const {
    if (failure_) std::rethrow_exception(failure_);
    if (store_) return *store_;
    // Called while an exception of Gang::create is handled: the rank failed before it needed the store, and
    // would now write its error into it. The exchange of records tells the error to all ranks instead.
    if (const auto now = std::current_exception(); now && now != outer_) std::rethrow_exception(now);
    try {
      rendezvous_.exchange(std::nullopt);
      const int64_t timeout_ms = options_.timeout_ms > 0 ? options_.timeout_ms : config().timeout_ms;
      store_ = connect_by_id(std::string(rendezvous_.id()), options_.rank, options_.size,
                             Deadline::after_ms(timeout_ms), {rendezvous_.host(), rendezvous_.port()});
    } catch (...) {  // remembered, because a rank enters the exchange only once
      failure_ = std::current_exception();
      throw;
    }
    return *store_;
  }

  const gw_gang_options& options_;
  RendezvousExchange& rendezvous_;
  // The exception that the caller is handling, or null.
  const std::exception_ptr outer_ = std::current_exception();
  mutable std::exception_ptr failure_;
  mutable std::shared_ptr<Store> store_;
};

}  // namespace

void make_id(void* id) {
  if (RAND_bytes(static_cast<unsigned char*>(id), kIdBytes) != 1)
    fail(Code::internal, "libcrypto gave no random bytes");
}

GangPtr create_by_all_gather(const gw_gang_options& o, std::optional<Error> refusal, GangOptions options) {
  RendezvousExchange rendezvous(o, options.name);
  GangPtr gang;
  if (!refusal)
    refusal = error_thrown_by([&] {
      options.store = std::make_shared<LazyStore>(o, rendezvous);
      gang = Gang::create(options);
    });
  if (!rendezvous.done()) rendezvous.exchange(refusal);
  if (refusal) throw *refusal;
  return gang;
}

}  // namespace gangway::capi
