#include "gang_start.h"

#include <openssl/rand.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/config.h"
#include "base/line.h"

namespace gangway::capi {
namespace {

// The record that ranks exchange through the caller's all-gather: rank and size, the id that rank 0 made, or
// an error.
struct Word {
  int32_t rank = -1, size = 0;
  int32_t code = 0;  // of the error; 0: there is none
  char id[kIdBytes] = {};
  char refusal[436] = "";
};
static_assert(sizeof(Word) == 512);

void refuse(Word& word, const Error& why) {
  word.code = static_cast<int32_t>(why.code());
  put_line(word.refusal, sizeof word.refusal, why.message());
}

// The exchange of the records, which happens once. Every rank takes part, even a rank that is out of memory,
// because its peers cannot know that it failed and would wait for it.
class Meeting {
 public:
  Meeting(const gw_gang_options& o, const std::string& gang) : options_(o), gang_(gang) {}

  bool over() const { return over_; }
  std::string_view id() const { return {id_, kIdBytes}; }  // the id that rank 0 made; valid after enter()
  // Exchanges the records. Throws the first error (lowest rank).
  void enter(const std::optional<Error>& refusal) {
    over_ = true;
    Word mine;
    mine.rank = options_.rank;
    mine.size = options_.size;
    if (refusal) {
      refuse(mine, *refusal);
    } else if (options_.rank == 0) {
      if (const auto why = refusal_of([&] { make_id(mine.id); })) refuse(mine, *why);
    }
    std::vector<Word> words;
    if (refusal_of([&] { words.resize(static_cast<size_t>(options_.size)); }))
      exchange_without_memory(mine);
    else
      exchange(mine, words.data());
  }

 private:
  void exchange(const Word& mine, Word* words) {
    run_callback("all_gather", gang_,
                 [&] { return options_.all_gather(options_.user, &mine, sizeof mine, words); });
    for (int32_t r = 0; r < options_.size; ++r) {
      Word& word = words[r];
      if (word.rank != r || word.size != options_.size)
        fail(Code::invalid_argument, gang_, ": its all_gather callback gave rank ", r, " of ", options_.size,
             " the word of rank ", word.rank, " of ", word.size);
      word.refusal[sizeof word.refusal - 1] = '\0';
      if (word.code != 0) throw Error(static_cast<Code>(word.code), word.refusal);
    }
    std::memcpy(id_, words[0].id, kIdBytes);
  }

  // Uses the stack instead of the heap. It is not inlined, so that only this case takes so much stack.
  [[gnu::noinline]] void exchange_without_memory(Word& mine) {
    constexpr int32_t kMost = 256;  // no engine supports more ranks
    if (options_.size > kMost) throw std::bad_alloc();
    if (mine.code == 0) {
      mine.code = static_cast<int32_t>(Code::out_of_memory);
      std::snprintf(mine.refusal, sizeof mine.refusal, "rank %d has no memory for the words of %d ranks",
                    static_cast<int>(mine.rank), static_cast<int>(mine.size));
    }
    Word words[kMost];
    exchange(mine, words);
  }

  const gw_gang_options& options_;
  const std::string& gang_;
  bool over_ = false;
  char id_[kIdBytes] = {};
};

// A store that exchanges the records and connects by rank 0's id when it is first used. Gang::create uses its
// store only after the checks that a rank can make alone, such as that of the device, so that the exchange
// carries their errors.
class LateStore final : public Store {
 public:
  LateStore(const gw_gang_options& o, Meeting& meeting) : options_(o), meeting_(meeting) {}

  void put(const std::string& key, const std::string& value) override { store().put(key, value); }
  std::optional<std::string> get(const std::string& key) override { return store().get(key); }
  void remove(const std::string& key) override { store().remove(key); }
  std::string wait(const std::string& key, Deadline deadline) override { return store().wait(key, deadline); }

 private:
  Store& store() {
    if (failure_) std::rethrow_exception(failure_);
    if (store_) return *store_;
    // Called while an exception of Gang::create is handled: the rank failed before it needed the store, and
    // would now write its error into it. The exchange of records tells the error to all ranks instead.
    if (const auto now = std::current_exception(); now && now != outer_) std::rethrow_exception(now);
    try {
      meeting_.enter(std::nullopt);
      const int64_t timeout_ms = options_.timeout_ms > 0 ? options_.timeout_ms : config().timeout_ms;
      store_ = connect_by_id(std::string(meeting_.id()), options_.rank, options_.size,
                             Deadline::after_ms(timeout_ms));
    } catch (...) {  // remembered, because a rank enters the exchange only once
      failure_ = std::current_exception();
      throw;
    }
    return *store_;
  }

  const gw_gang_options& options_;
  Meeting& meeting_;
  // The exception that the caller is handling, or null.
  const std::exception_ptr outer_ = std::current_exception();
  std::exception_ptr failure_;
  std::shared_ptr<Store> store_;
};

}  // namespace

void make_id(void* id) {
  if (RAND_bytes(static_cast<unsigned char*>(id), kIdBytes) != 1)
    fail(Code::internal, "libcrypto gave no random bytes");
}

GangPtr create_by_all_gather(const gw_gang_options& o, std::optional<Error> refusal, GangOptions options) {
  Meeting meeting(o, options.name);
  GangPtr gang;
  if (!refusal)
    refusal = refusal_of([&] {
      options.store = std::make_shared<LateStore>(o, meeting);
      gang = Gang::create(options);
    });
  if (!meeting.over()) meeting.enter(refusal);
  if (refusal) throw *refusal;
  return gang;
}

}  // namespace gangway::capi
