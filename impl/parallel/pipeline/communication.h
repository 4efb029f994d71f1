// Adds to a schedule of computations what moves data.
//
// Thread rule: pure functions.
#pragma once

#include "parallel/pipeline/schedule.h"

namespace gangway {

// A send right behind the computation whose output it sends, and its receive in the peer's row where that rank stands at
// that time. So every pair stands at the same place of one order of all ranks, and no transport can block for ever.
// INVALID_ARGUMENT: the schedule is not correct, or it has sends already.
Schedule with_communication(const Schedule& schedule);

// UNSHARD before a stage is used and RESHARD when it is not among the next `most_unsharded` stages of its rank any more,
// at most so many at a time; REDUCE_GRAD after its last weight half.
// INVALID_ARGUMENT: the schedule has such actions already, or `most_unsharded` is below 1.
Schedule with_fsdp(const Schedule& schedule, int most_unsharded = 3);

}  // namespace gangway
