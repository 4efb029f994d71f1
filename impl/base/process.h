// What the kernel reports about a process of this host.
//
// Thread rule: pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace gangway {

// Returns field `number` of /proc/PID/stat, as proc(5) counts them. It must be 4 or more, since the earlier
// fields are no numbers. Returns nothing if there is no such process here, or if the kernel hides it.
std::optional<int64_t> process_stat(pid_t pid, int number);

// Returns when the process began, in clock ticks since the host's boot, or 0 if that is not known. Together
// with its id, it identifies a process even when the id is used again.
int64_t process_start(pid_t pid);

// A time by a clock that cannot be set: nanoseconds since boot, and a hash that identifies the boot of the
// host (and the time namespace) which counts them.
struct BootTime {
  uint64_t boot = 0;
  int64_t ns = 0;
};
BootTime boot_time();
// Returns a time at which the calling process had begun: never before its begin, and at most a clock tick
// after it. So what has a later time was done after the begin of this process.
BootTime own_start();

// Returns whether the process has crashed and the kernel is writing its core file. None of its threads runs
// any more.
bool dumps_core(pid_t pid);

}  // namespace gangway
