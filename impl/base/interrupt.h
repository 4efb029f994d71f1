// The caller's interrupt hook. Every blocking call on the thread that set the hook calls it at least every
// 100 ms.
//
// Thread rule: the hook belongs to the calling thread.
#pragma once

namespace gangway {

using InterruptCheck = int (*)(void* user);  // A result other than 0 ends the wait.

// Replaces this thread's hook, and runs the former hook's `release` once. A null `check` removes the hook.
void set_interrupt(InterruptCheck check, void* user, void (*release)(void* user));

// Throws Error{caller} when the hook asks to stop or throws. A hook that ends its thread (pthread_exit,
// cancellation) unwinds through the callers, so they must clean up for any exception. A wait must call this
// between sleeps of at most 100 ms.
void poll_interrupt();

// Like poll_interrupt, for use between pieces of computing or copying, however short: it calls the hook at
// most every 20 ms and otherwise only reads a clock.
void poll_interrupt_throttled();

// While a shield lives, poll_interrupt does not call the hook on this thread. It is for waits that cannot be
// given up, as in a destructor whose memory peers still read.
class InterruptShield {
 public:
  InterruptShield() noexcept;
  ~InterruptShield();
  InterruptShield(const InterruptShield&) = delete;
  InterruptShield& operator=(const InterruptShield&) = delete;
};

}  // namespace gangway
