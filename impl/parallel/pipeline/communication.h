// Adds the actions that move data to a schedule of computations.
//
// Thread rule: pure functions.
#pragma once

#include "parallel/pipeline/schedule.h"

namespace gangway {

// Adds each send directly after the computation whose output it sends, and its receive to the peer's row at
// the same point of simulated time. All pairs therefore have the same order on all ranks, so no transport
// blocks for ever. INVALID_ARGUMENT: the schedule is not correct, or it has sends or receives already.
Schedule with_communication(const Schedule& schedule);

// Adds an UNSHARD before a stage is used, and a RESHARD when the stage is no longer among the next
// `most_unsharded` stages that its rank uses. At most that many stages are unsharded at a time. Adds a
// REDUCE_GRAD after the last weight half of a stage. INVALID_ARGUMENT: the schedule has such actions already,
// or `most_unsharded` is below 1, or below 2 where a fused pair runs two stages together.
Schedule with_fsdp(const Schedule& schedule, int most_unsharded = 3);

}  // namespace gangway
