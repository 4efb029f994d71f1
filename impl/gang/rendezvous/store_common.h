// Functions that all stores share: checks of limits, the error of a wait that timed out, and polling with
// growing pauses.
//
// Thread rule: values of one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/deadline.h"
#include "gang/rendezvous/store.h"

namespace gangway {

inline constexpr int64_t kLookMs = 300;  // how often a waiting rank looks whether another has failed
inline constexpr int64_t kNapMs = 50;    // the longest time between two calls of the interrupt hook

void check_store_key(const std::string& key);
void check_store_value(const std::string& key, const std::string& value);

[[noreturn]] void fail_store_wait(const std::string& key);  // TIMEOUT, which names the key
// Implements Store::wait() for a store that cannot wake its waiters: it polls.
std::string poll_store(Store& store, const std::string& key, Deadline deadline);

// Pauses that grow from 1 to 50 ms; each calls the interrupt hook.
class StoreBackoff {
 public:
  explicit StoreBackoff(Deadline deadline) : deadline_(deadline) {}
  // Returns false, without a pause, once the deadline has passed. Throws what the hook throws.
  bool pause();

 private:
  Deadline deadline_;
  int64_t ms_ = 1;
};

}  // namespace gangway
