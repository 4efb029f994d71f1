// Connects every rank to every other: two connections for each pair, control and data, which the lower rank
// opens. Both ends prove that they know the gang's key (rendezvous/handshake.h). The proof covers the purpose
// of the connection, both ranks, both starts of their processes, the attempt of rank 0, the build of the
// library and the options; any difference is refused.
//
//   lower -> higher  purpose u8, hello                 57 bytes
//   higher -> lower  nonce, proof                      64 bytes
//   lower -> higher  proof                             32 bytes
//
// Connections that have not proved anything are limited in number and in time.
//
// Thread rule: blocks the calling thread, and calls its interrupt hook.
#pragma once

#include <list>

#include "gang/network/link.h"
#include "gang/network/places.h"

namespace gangway::network {

// Collective over all ranks. Throws TIMEOUT at the meeting's deadline, PEER_LOST if a rank has died, and GANG
// if a rank has given up or does not know the key.
std::list<Link> connect_all(Meeting& meeting, const EngineOptions& options);

}  // namespace gangway::network
