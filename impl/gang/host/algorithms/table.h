// The table of collectives: which algorithm each one has.
//
// Thread rule: constants.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

const Algorithm& algorithm_of(CollectiveOp op);

// Each of these is defined in the file of its name.
extern const Algorithm kBarrier, kAllReduce, kReduce, kReduceScatter, kAllGather, kGather, kBroadcast,
    kScatter, kAllToAll, kSend, kRecv;

}  // namespace gangway::host
