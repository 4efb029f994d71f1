// The caller's interrupt hook, asked at least every 100 ms in every blocking wait on the thread that set it.
// Thread rule: the hook belongs to the calling thread.
#pragma once

namespace gangway {

using InterruptCheck = int (*)(void* user);  // non-zero: stop waiting

// Replaces this thread's hook; the former one's `release` is run once. Null check: none.
void set_interrupt(InterruptCheck check, void* user, void (*release)(void* user));

// Throws Error{caller} when the hook says stop. Call it between naps of at most 100 ms.
void poll_interrupt();

}  // namespace gangway
