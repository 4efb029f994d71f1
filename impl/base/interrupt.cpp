#include "base/interrupt.h"

#include "base/error.h"

namespace gangway {
namespace {

struct Hook {
  InterruptCheck check = nullptr;
  void* user = nullptr;
  void (*release)(void*) = nullptr;
  ~Hook() {
    if (release != nullptr) release(user);
  }
};

thread_local Hook hook;
thread_local int shields = 0;

}  // namespace

void set_interrupt(InterruptCheck check, void* user, void (*release)(void* user)) {
  void (*const old_release)(void*) = hook.release;
  void* const old_user = hook.user;
  hook.check = check;
  hook.user = user;
  hook.release = release;
  if (old_release != nullptr) old_release(old_user);
}

void poll_interrupt() {
  if (shields == 0 && hook.check != nullptr && hook.check(hook.user) != 0)
    fail(Code::caller, "the wait was ended by the caller's interrupt hook");
}

InterruptShield::InterruptShield() noexcept { ++shields; }
InterruptShield::~InterruptShield() { --shields; }

}  // namespace gangway
