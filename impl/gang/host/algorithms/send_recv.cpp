// send, recv: this file only declares the direction of the data. call/pair.cpp moves the bytes.
#include "gang/host/algorithms/table.h"

namespace gangway::host {

const Algorithm kSend{.flow = Flow::to_peer, .flow_of_inlined = Flow::to_peer, .only_moves = true};
const Algorithm kRecv{.flow = Flow::from_peer, .flow_of_inlined = Flow::from_peer};

}  // namespace gangway::host
