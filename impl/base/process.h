// What the kernel says about a process of this host.
//
// Thread rule: pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace gangway {

// Field `number` of /proc/PID/stat as proc(5) counts them, 4 or more (those before are no numbers). None: no
// such process here, or nothing may be known of it.
std::optional<int64_t> process_stat(pid_t pid, int number);

// When the process began, in clock ticks since the host's boot: with its id a name that no other process gets. 0: not known.
int64_t process_start(pid_t pid);

// Where and when, by a clock that cannot be set: nanoseconds since boot, and which boot of which host (and which of its time
// name spaces) counts them.
struct BootTime {
  uint64_t boot = 0;
  int64_t ns = 0;
};
BootTime boot_time();
// Of the process that calls; up to a clock tick too early.
BootTime own_start();

// Has the process crashed, so that the kernel is writing its core file now? None of its threads runs any more.
bool dumps_core(pid_t pid);

}  // namespace gangway
