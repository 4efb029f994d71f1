// The store between processes: a server in rank 0, clients everywhere, over a stream socket. On one host the socket is
// abstract and named by HMAC(secret, job, restart count), so no port is taken; between hosts it is TCP.
//
// Every connection starts with a challenge-response both ways (HMAC-SHA256 over both nonces and the rank); every frame
// after that carries a sequence number and a MAC. Frames are fixed binary and length-limited; unauthenticated bytes
// never crash a rank, never make it take over 1 MiB and never join. Thread rule: any thread.
#pragma once

#include <memory>

#include "gang/rendezvous/store.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// Rank 0 also starts the server thread, which lives as long as its store object does and until all ranks left or the
// timeout passed.
std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options);

}  // namespace gangway
