#include "base/interrupt.h"

#include <cxxabi.h>

#include <chrono>
#include <exception>

#include "base/error.h"

namespace gangway {
namespace {

using Clock = std::chrono::steady_clock;

// The least time between two calls of the hook while a thread computes or copies.
constexpr auto kPollInterval = std::chrono::milliseconds(20);

struct Hook {
  InterruptCheck check = nullptr;
  void* user = nullptr;
  void (*release)(void*) = nullptr;
  // When poll_interrupt_throttled may call the hook again.
  Clock::time_point next{};
  ~Hook() {
    if (release != nullptr) release(user);
  }
};

thread_local Hook hook;
thread_local int shields = 0;

// A hook written in C++ may throw. The forced unwind of a hook that ends its thread must not be swallowed.
bool asks_to_stop() {
  try {
    return hook.check(hook.user) != 0;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    fail(Code::caller, "the caller's interrupt hook threw: ", error.what());
  } catch (...) {
    fail(Code::caller, "the caller's interrupt hook threw an unknown exception");
  }
}

}  // namespace

void set_interrupt(InterruptCheck check, void* user, void (*release)(void* user)) {
  void (*const old_release)(void*) = hook.release;
  void* const old_user = hook.user;
  hook.check = check;
  hook.user = user;
  hook.release = release;
  hook.next = {};
  if (old_release != nullptr) old_release(old_user);
}

void poll_interrupt() {
  if (shields == 0 && hook.check != nullptr && asks_to_stop())
    fail(Code::caller, "the wait was ended by the caller's interrupt hook");
}

void poll_interrupt_throttled() {
  if (hook.check == nullptr) return;
  const Clock::time_point now = Clock::now();
  if (now < hook.next) return;
  hook.next = now + kPollInterval;
  poll_interrupt();
}

InterruptShield::InterruptShield() noexcept { ++shields; }
InterruptShield::~InterruptShield() { --shields; }

}  // namespace gangway
