// Rendezvous: a small key-value store where ranks meet before they have a gang.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"

namespace gangway {

constexpr size_t kStoreKeyLimit = 1 << 10;    // bytes of one key, at least 1; else INVALID_ARGUMENT
constexpr size_t kStoreValueLimit = 1 << 20;  // bytes of one value; larger is INVALID_ARGUMENT

class Store {
 public:
  virtual ~Store() = default;
  virtual void put(const std::string& key, const std::string& value) = 0;  // replaces
  virtual std::optional<std::string> get(const std::string& key) = 0;      // now, or nothing
  virtual void remove(const std::string& key) = 0;

  // Blocks until the key is there. Error{timeout} naming the key; asks the interrupt hook.
  virtual std::string wait(const std::string& key, Deadline deadline) = 0;
};

// Shared by the threads of one process.
std::shared_ptr<Store> make_memory_store();

// A folder that all ranks see; values appear by rename. The folder is made with mode 0700 when it is absent.
std::shared_ptr<Store> make_file_store(const std::string& folder);

// The caller's own store. The functions run on the thread that uses the store, with no lock held; `release` runs once,
// also when making the store fails.
struct StoreCallbacks {
  // Return 0, or non-zero for failure. get: *out_size bytes into out (capacity given); *out_size = -1 when absent.
  int (*put)(void* user, const char* key, const void* value, size_t size);
  int (*get)(void* user, const char* key, void* out, size_t capacity, int64_t* out_size);
  int (*remove)(void* user, const char* key);
  void* user;
  void (*release)(void* user);
};
// Throws Error{caller} for an answer that is not 0; `reason`: the caller's own words, or "".
void check_store_answer(const char* what, const std::string& key, int answer, const std::string& reason);
std::shared_ptr<Store> make_callback_store(const StoreCallbacks& callbacks);

// Keys get a prefix: several gangs in one store.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> inner, std::string prefix);

}  // namespace gangway
