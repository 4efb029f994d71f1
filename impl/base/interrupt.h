// The caller's interrupt hook, asked at least every 100 ms in every blocking call on the thread that set it.
// Thread rule: the hook belongs to the calling thread.
#pragma once

namespace gangway {

using InterruptCheck = int (*)(void* user);  // non-zero: stop waiting

// Replaces this thread's hook; the former one's `release` is run once. Null check: none.
void set_interrupt(InterruptCheck check, void* user, void (*release)(void* user));

// Throws Error{caller} when the hook says stop or throws. A hook that ends its thread (pthread_exit, cancellation) unwinds
// through the callers, so what they must undo is undone for any exception. Call it between naps of at most 100 ms.
void poll_interrupt();

// The same between two pieces of computing or copying, however short: asks at most every 20 ms, else reads a clock.
void poll_interrupt_at_times();

// While it lives, poll_interrupt asks no hook on this thread: for waits that cannot be given up, as in a
// destructor whose memory peers still read.
class InterruptShield {
 public:
  InterruptShield() noexcept;
  ~InterruptShield();
  InterruptShield(const InterruptShield&) = delete;
  InterruptShield& operator=(const InterruptShield&) = delete;
};

}  // namespace gangway
