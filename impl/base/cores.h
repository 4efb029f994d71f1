// How many processors this process may use.
//
// Thread rule: any thread.
#pragma once

#include "base/cgroups.h"

namespace gangway {

// Returns the processor time that the tightest CPU quota of this process's control groups allows, in
// processors (0.5 is half a processor); infinity without a quota.
double cpu_quota(const CgroupFiles& files = {});

// Returns the number of processors for threads: those of the affinity, and no more than the quota pays for.
// A part of a processor does not count, because a thread that has used up the quota stops all threads that
// wait for it. At least 1.
int usable_cores();

}  // namespace gangway
