// The store for processes: a server in rank 0 and a client in every rank, over a stream socket. On one
// host the socket is abstract and is named by HMAC(secret, job, restart count), so no port is used. Between
// hosts it is TCP.
//
// Every connection starts with a challenge and response in both directions (HMAC-SHA256 over both nonces and
// the rank). Every frame after that carries a sequence number and a MAC. Frames are fixed binary with limited
// lengths. Bytes without authentication never crash a rank, never make it allocate more than 1 MiB, and never
// join.
//
// Thread rule: any thread.
#pragma once

#include <memory>

#include "gang/rendezvous/store.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// Rank 0 also starts the server's thread. It lives as long as this store object, and then until all ranks
// have left or the timeout has passed.
std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options);

}  // namespace gangway
