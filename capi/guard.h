// The C layer. Belongs here: one thin file for each public header, the guard, arguments, sized structs and
// handles. Does not belong here: behaviour. An entry reads its arguments, calls one thing of a layer below
// and hands out the result.
//
// The guard around every entry. Each entry with a gw_status is one call of guarded(), which clears the
// thread's last error, refuses in a forked child, runs the body and turns any exception into a status and a
// text. No exception leaves an entry. The one thing that unwinds through the library is the end of the
// thread, when a callback calls pthread_exit. A request to cancel the thread waits until the entry returns.
#pragma once

#include <cxxabi.h>
#include <gangway/base.h>
#include <pthread.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fork.h"
#include "base/refusal.h"
#include "claims.h"
#include "device/device.h"

namespace gangway::capi {

// The last error of a thread.
struct LastError {
  std::optional<Error> error;
  Code code = Code::ok;
  char fixed[256] = "";  // the text when there was no memory for `error`
  std::string line;      // what gw_last_error_text handed out
};
LastError& last_error() noexcept;  // of the calling thread

void clear_error() noexcept;
gw_status set_error(const Error& error) noexcept;
// Takes no memory; a long message is cut.
gw_status set_error(Code code, const char* message) noexcept;
// Turns the current exception into a status and the thread's last error. Call it inside a catch block. `call`
// is the entry's name. It is put before the text of a refusal, unless that text begins with a "PART: "
// already.
gw_status current_exception_status(const char* call) noexcept;

// For tests: makes the next guarded call on this thread throw (1: bad_alloc, 2: std::exception, 3: int; 0:
// nothing).
void arm_fault(int kind) noexcept;
void throw_armed_fault();
// Whether any thread ever armed a fault, so that a program that never does pays one load for each entry.
extern std::atomic<bool> fault_was_armed;

// Holds back a request to cancel this thread while it lives, because most of the library may not be left in
// the middle.
class CancellationDeferred {
 public:
  CancellationDeferred() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDeferred() { pthread_setcancelstate(before_, nullptr); }
  CancellationDeferred(const CancellationDeferred&) = delete;
  CancellationDeferred& operator=(const CancellationDeferred&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// The stream that the work of an entry is ordered on. When the entry returns, all of its work has been
// submitted, so that what the caller then puts on the native stream runs after it. Entries nest when a
// callback calls the library.
class EntryStream {
 public:
  EntryStream() noexcept : place_(now_), outer_(std::exchange(place_, nullptr)) {}
  ~EntryStream() {  // submits, after an error too
    if (place_ != nullptr) submit_last();
    place_ = outer_;
  }
  EntryStream(const EntryStream&) = delete;
  EntryStream& operator=(const EntryStream&) = delete;
  static void submit() { submit(now_); }  // of the innermost entry
  void end() { submit(place_); }
  // Makes the stream of a caller's native one (Device::wrap_stream) that of the innermost entry; an entry has
  // one.
  static Stream& of(Device& device, void* native) { return use(device.wrap_stream(native)); }
  static Stream& use(Stream& stream) { return *(now_ = &stream); }

 private:
  static void submit(Stream*& place) {
    if (place != nullptr) std::exchange(place, nullptr)->submit();
  }
  void submit_last() noexcept;

  static thread_local constinit Stream* now_;
  Stream*& place_;  // now_, which each function that names it has to look up
  Stream* const outer_;
};

template <typename Body>
gw_status guarded(Body&& body, const char* call = __builtin_FUNCTION()) {
  clear_error();
  const CancellationDeferred deferred;
  const EntryClaims claims;
  EntryStream entry;
  try {
    check_fork();
    if (fault_was_armed.load(std::memory_order_relaxed)) [[unlikely]]
      throw_armed_fault();
    body();
    entry.end();
    return GW_OK;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return current_exception_status(call);
  }
}

}  // namespace gangway::capi
