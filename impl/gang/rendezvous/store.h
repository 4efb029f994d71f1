// Rendezvous: a small key-value store where ranks meet before they have a gang.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "gang/rendezvous/hmac.h"

namespace gangway {

constexpr size_t kStoreKeyLimit = 1 << 10;    // bytes of one key, at least 1; otherwise INVALID_ARGUMENT
constexpr size_t kStoreValueLimit = 1 << 20;  // bytes of one value; a larger one is INVALID_ARGUMENT

// What a store knows of the ranks that meet at it.
struct StoreFacts {
  bool spans_hosts = false;  // ranks may be on several hosts
  // Made from the secret with which the ranks have proved that they belong together; absent where the store
  // itself is trusted.
  std::optional<Secret> key = {};
  std::string own_address = {};     // of this rank's connection to rank 0, as a number, or ""
  std::string server_address = {};  // the address at which this rank has reached rank 0, or ""
};

class Store {
 public:
  virtual ~Store() = default;
  virtual void put(const std::string& key, const std::string& value) = 0;  // replaces an older value
  // Returns nothing if the key is absent. Does not wait.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  virtual void remove(const std::string& key) = 0;

  // Blocks until the key exists. Calls the interrupt hook meanwhile. Throws TIMEOUT, which names the key.
  virtual std::string wait(const std::string& key, Deadline deadline) = 0;

  virtual StoreFacts facts() const { return {}; }
  // Returns what is known of processes that came and do not belong to the ranks, as "; ..." for the text of a
  // wait that was in vain, or "".
  virtual std::string refused() { return ""; }
};

// A store that the threads of one process share.
std::shared_ptr<Store> make_memory_store();

// A store in a folder that all ranks share. A value becomes visible when its file is renamed. If the folder
// is missing, it is created with mode 0700.
std::shared_ptr<Store> make_file_store(const std::string& folder);

// A store of the caller. Its functions run on the thread that uses the store, without a lock. `release` runs
// once, also when making the store fails.
struct StoreCallbacks {
  // They return 0, or another number for failure. get writes *out_size bytes into `out`, which holds
  // `capacity`; *out_size = -1 says that the key is absent.
  int (*put)(void* user, const char* key, const void* value, size_t size);
  int (*get)(void* user, const char* key, void* out, size_t capacity, int64_t* out_size);
  int (*remove)(void* user, const char* key);
  void* user;
  void (*release)(void* user);
};
// Throws Error{caller} for an answer that is not 0. `reason` is the caller's own text, or "".
void check_store_answer(const char* what, const std::string& key, int answer, const std::string& reason);
std::shared_ptr<Store> make_callback_store(const StoreCallbacks& callbacks);

// Puts a prefix before each key, so that several gangs can use one store.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> inner, std::string prefix);

}  // namespace gangway
