#include "gang_start.h"

#include <openssl/rand.h>

#include <cstdio>
#include <exception>

#include "base/config.h"

namespace gangway::capi {
namespace {

// What ranks tell each other through the caller's all-gather: where they stand, rank 0's id, or a refusal.
struct Word {
  int32_t rank = -1, size = 0;
  int32_t code = 0;  // of the refusal; 0: none
  char id[kIdBytes] = {};
  char refusal[436] = "";
};
static_assert(sizeof(Word) == 512);

Word word_of(const gw_gang_options& o, std::optional<Error> refusal) {
  Word mine;
  mine.rank = o.rank;
  mine.size = o.size;
  if (!refusal && o.rank == 0) refusal = refusal_of([&] { make_id(mine.id); });
  if (refusal) {
    mine.code = static_cast<int32_t>(refusal->code());
    std::snprintf(mine.refusal, sizeof mine.refusal, "%s", refusal->message().c_str());
  }
  return mine;
}

// The store behind an id that comes with its first use: by then a gang has been refused for all that one rank
// alone can see, as its device.
class LateStore final : public Store {
 public:
  LateStore(const gw_gang_options& o, std::string gang) : options_(o), gang_(std::move(gang)) {}

  bool met() const { return met_; }
  void meet(const std::optional<Error>& refusal) {
    met_ = true;
    try {
      gather(word_of(options_, refusal));
    } catch (...) {  // nobody is asked twice
      failure_ = std::current_exception();
      throw;
    }
  }

  void put(const std::string& key, const std::string& value) override { store().put(key, value); }
  std::optional<std::string> get(const std::string& key) override { return store().get(key); }
  void remove(const std::string& key) override { store().remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override { return store().wait(key, deadline); }

 private:
  Store& store() {
    if (!met_) meet(std::nullopt);
    if (failure_) std::rethrow_exception(failure_);
    return *store_;
  }

  void gather(const Word& mine) {
    std::vector<Word> all(static_cast<size_t>(options_.size));
    run_callback("all_gather", gang_,
                 [&] { return options_.all_gather(options_.user, &mine, sizeof mine, all.data()); });
    for (int32_t r = 0; r < options_.size; ++r) {
      Word& word = all[static_cast<size_t>(r)];
      if (word.rank != r || word.size != options_.size)
        fail(Code::invalid_argument, gang_, ": its all_gather callback gave rank ", r, " of ", options_.size,
             " the word of rank ", word.rank, " of ", word.size);
      word.refusal[sizeof word.refusal - 1] = '\0';
      if (word.code != 0) throw Error(static_cast<Code>(word.code), word.refusal);
    }
    if (options_.size == 1) return;
    const int64_t timeout_ms = options_.timeout_ms > 0 ? options_.timeout_ms : config().timeout_ms;
    store_ = connect_by_id(std::string(all[0].id, kIdBytes), options_.rank, options_.size,
                           Deadline::after_ms(timeout_ms));
  }

  const gw_gang_options& options_;
  const std::string gang_;
  bool met_ = false;
  std::exception_ptr failure_;
  std::shared_ptr<Store> store_;
};

}  // namespace

void make_id(void* id) {
  if (RAND_bytes(static_cast<unsigned char*>(id), kIdBytes) != 1)
    fail(Code::internal, "libcrypto gave no random bytes");
}

GangPtr create_by_all_gather(const gw_gang_options& o, const std::optional<Error>& refusal,
                             GangOptions options) {
  const auto store = std::make_shared<LateStore>(o, options.name);
  options.store = store;
  GangPtr gang;
  std::optional<Error> why = refusal;
  if (!why) why = refusal_of([&] { gang = Gang::create(options); });
  if (!store->met()) store->meet(why);
  if (why) throw *why;
  return gang;
}

}  // namespace gangway::capi
