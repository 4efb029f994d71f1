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

// Has the process crashed, so that the kernel is writing its core file now? None of its threads runs any more.
bool dumps_core(pid_t pid);

}  // namespace gangway
