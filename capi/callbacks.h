// How entries call the caller's functions, and how they hold the caller's objects.
#pragma once

#include "guard.h"
#include "sized_structs.h"

namespace gangway::capi {

// Collects the text that a callback passes to gw_error_set. An object exists while a callback that returns a
// status runs on this thread; objects nest as callbacks do.
class CallbackText {
 public:
  CallbackText() noexcept;
  ~CallbackText();
  CallbackText(const CallbackText&) = delete;
  CallbackText& operator=(const CallbackText&) = delete;
  // Null when no callback runs on this thread.
  static CallbackText* innermost() noexcept;

  std::string text;

 private:
  CallbackText* outer_;
};

// Throws an Error of the callback's code unless it is GW_OK. `said` is what the callback gave gw_error_set.
void check_callback(gw_status status, const char* callback, const std::string& owner,
                    const std::string& said);
// Call it inside a catch block: throws what the callback threw as an Error.
[[noreturn]] void callback_threw(const char* callback, const std::string& owner);

// A callback may end its thread. The calls that the thread was in then unwind and give back what they hold;
// none of them may call a callback again, because ending the thread a second time ends the process.
void thread_ends() noexcept;
void check_thread_lives(const char* callback, const std::string& owner);

// Runs a caller's callback. Whatever a C++ callback throws becomes an Error, because peers have to be told.
template <typename Call>
void run_callback(const char* callback, const std::string& owner, Call&& call) {
  check_thread_lives(callback, owner);
  clear_error();  // an earlier callback's error must not be taken for the cause of this one's failure
  CallbackText said;
  gw_status status = GW_OK;
  try {
    status = call();
  } catch (const abi::__forced_unwind&) {
    thread_ends();
    throw;
  } catch (...) {
    callback_threw(callback, owner);
  }
  check_callback(status, callback, owner, said.text);
}

// A caller's object with its free function, which runs exactly once.
class CallerObject {
 public:
  CallerObject() = default;
  CallerObject(void* object, gw_free_fn release) : object_(object), release_(release) {}
  CallerObject(CallerObject&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), release_(std::exchange(other.release_, nullptr)) {}
  CallerObject& operator=(CallerObject&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~CallerObject() {
    if (release_ != nullptr) release_(object_);
  }
  void* object() const { return object_; }
  void dismiss() noexcept { release_ = nullptr; }  // the free function will not run

 private:
  void* object_ = nullptr;
  gw_free_fn release_ = nullptr;
};

// Whether a caller's struct was set up and is long enough for `user` and `free_user`. Both exist since level
// 0.0, so a caller that is older than this library has a shorter struct and still the right to have its
// object freed.
template <typename T>
bool reaches_object(const T* given) noexcept {
  constexpr size_t kLeast = offsetof(T, free_user) + sizeof(gw_free_fn);
  return given != nullptr && given->struct_size >= kLeast && given->struct_size <= kLargestStruct;
}
template <typename T>
CallerObject object_of(const T* given) noexcept {
  return reaches_object(given) ? CallerObject(given->user, given->free_user) : CallerObject();
}

}  // namespace gangway::capi
