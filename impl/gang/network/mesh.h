// Connects every rank to every other when the gang starts: a control connection for each pair, which the
// lower rank opens (contacts.h says how). Data connections follow when they are first needed (connector.h).
//
// Thread rule: blocks the calling thread, and calls its interrupt hook.
#pragma once

#include "gang/network/connector.h"
#include "gang/network/places.h"

namespace gangway::network {

// Collective over all ranks. Throws TIMEOUT at the meeting's deadline, PEER_LOST if a rank has died, and GANG
// if a rank has given up or does not know the key.
Connections connect_all(Meeting& meeting, const EngineOptions& options);

}  // namespace gangway::network
