// send, recv: which of the two ranks gives and which one gets. The bytes move in call/pair.cpp.
#include "gang/host/algorithms/table.h"

namespace gangway::host {

const Algorithm kSend{.flow = Flow::to_peer, .flow_of_inlined = Flow::to_peer};
const Algorithm kRecv{.flow = Flow::from_peer, .flow_of_inlined = Flow::from_peer};

}  // namespace gangway::host
