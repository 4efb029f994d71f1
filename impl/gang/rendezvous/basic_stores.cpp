#include "gang/rendezvous/store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "gang/rendezvous/store_common.h"

namespace gangway {
namespace {

class MemoryStore final : public Store {
 public:
  void put(const std::string& key, const std::string& value) override {
    check_store_value(key, value);
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }

  std::optional<std::string> get(const std::string& key) override {
    check_store_key(key);
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  void remove(const std::string& key) override {
    check_store_key(key);
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }

  std::string wait(const std::string& key, Deadline deadline) override {
    check_store_key(key);
    while (true) {
      poll_interrupt();  // without the lock, because the hook may take long
      std::unique_lock lock(mutex_);
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
      if (deadline.passed()) fail_store_wait(key);
      changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(kNapMs) + 1));
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> inner, std::string prefix)
      : inner_(std::move(inner)), prefix_(std::move(prefix)) {}

  StoreFacts facts() const override { return inner_->facts(); }
  std::string refused() override { return inner_->refused(); }
  void put(const std::string& key, const std::string& value) override { inner_->put(full(key), value); }
  std::optional<std::string> get(const std::string& key) override { return inner_->get(full(key)); }
  void remove(const std::string& key) override { inner_->remove(full(key)); }
  std::string wait(const std::string& key, Deadline deadline) override {
    return inner_->wait(full(key), deadline);
  }

 private:
  std::string full(const std::string& key) const {
    check_store_key(key);  // the inner store would accept an empty key, because it sees the prefix
    return prefix_ + key;
  }

  const std::shared_ptr<Store> inner_;
  const std::string prefix_;
};

class CallbackStore final : public Store {
 public:
  explicit CallbackStore(const StoreCallbacks& callbacks) : callbacks_(callbacks) {}
  ~CallbackStore() override {
    if (callbacks_.release != nullptr) callbacks_.release(callbacks_.user);
  }
  CallbackStore(const CallbackStore&) = delete;
  CallbackStore& operator=(const CallbackStore&) = delete;

  StoreFacts facts() const override { return {.spans_hosts = true}; }

  void check() const {
    if (callbacks_.put == nullptr || callbacks_.get == nullptr || callbacks_.remove == nullptr)
      fail(Code::invalid_argument, "store: a caller's store needs put, get and remove");
  }

  void put(const std::string& key, const std::string& value) override {
    check_store_value(key, value);
    answered("put", key, callbacks_.put(callbacks_.user, key.c_str(), value.data(), value.size()));
  }

  std::optional<std::string> get(const std::string& key) override {
    check_store_key(key);
    // A large buffer is cheap, because pages that are never written cost nothing.
    const auto room = std::make_unique_for_overwrite<char[]>(kStoreValueLimit);
    int64_t size = -1;
    answered("get", key, callbacks_.get(callbacks_.user, key.c_str(), room.get(), kStoreValueLimit, &size));
    if (size < 0) return std::nullopt;
    if (static_cast<uint64_t>(size) > kStoreValueLimit)
      fail(Code::caller, "store: the caller's get gave ", size, " bytes for \"", key,
           "\", over the limit of ", kStoreValueLimit);
    return std::string(room.get(), static_cast<size_t>(size));
  }

  void remove(const std::string& key) override {
    check_store_key(key);
    answered("remove", key, callbacks_.remove(callbacks_.user, key.c_str()));
  }

  std::string wait(const std::string& key, Deadline deadline) override {
    return poll_store(*this, key, deadline);
  }

 private:
  static void answered(const char* what, const std::string& key, int answer) {
    check_store_answer(what, key, answer, "");
  }

  const StoreCallbacks callbacks_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

std::shared_ptr<Store> make_callback_store(const StoreCallbacks& callbacks) {
  // From here on its destructor calls `release`.
  const auto store = std::make_shared<CallbackStore>(callbacks);
  store->check();
  return store;
}

void check_store_answer(const char* what, const std::string& key, int answer, const std::string& reason) {
  if (answer == 0) return;
  const bool known = answer > 0 && answer <= static_cast<int>(Code::internal);
  fail(Code::caller, "store: the caller's ", what, " of \"", key, "\" returned ", answer,
       known ? text(" (", name(static_cast<Code>(answer)), ")") : "", reason.empty() ? "" : ": ", reason);
}

std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> inner, std::string prefix) {
  if (inner == nullptr) fail(Code::invalid_argument, "store: a prefix needs a store behind it");
  return std::make_shared<PrefixStore>(std::move(inner), std::move(prefix));
}

void check_store_key(const std::string& key) {
  if (key.empty() || key.size() > kStoreKeyLimit)
    fail(Code::invalid_argument, "store: a key has ", key.size(), " bytes, not 1 to ", kStoreKeyLimit);
  if (key.find('\0') != std::string::npos) fail(Code::invalid_argument, "store: a key holds a zero byte");
}

void check_store_value(const std::string& key, const std::string& value) {
  check_store_key(key);
  if (value.size() > kStoreValueLimit)
    fail(Code::invalid_argument, "store: the value of \"", key, "\" has ", value.size(),
         " bytes, over the limit of ", kStoreValueLimit);
}

void fail_store_wait(const std::string& key) {
  fail(Code::timeout, "store: \"", key, "\" was not there when the time was up");
}

std::string poll_store(Store& store, const std::string& key, Deadline deadline) {
  StoreBackoff backoff(deadline);
  while (true) {
    if (auto value = store.get(key)) return *std::move(value);
    if (!backoff.pause()) fail_store_wait(key);
  }
}

bool StoreBackoff::pause() {
  poll_interrupt();
  if (deadline_.passed()) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(deadline_.left_ms(ms_)));
  if (ms_ < kNapMs) ms_ = std::min(2 * ms_, kNapMs);
  return true;
}

}  // namespace gangway
