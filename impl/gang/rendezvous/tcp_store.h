// The store between processes: a server in rank 0, clients everywhere, over a stream socket. On one host the socket is
// abstract and named by HMAC(secret, job, restart count), so no port is taken; between hosts it is TCP.
//
// Every connection starts with a challenge-response both ways (HMAC-SHA256 over both nonces and the rank); every frame
// after that carries a sequence number and a MAC. Frames are fixed binary and length-limited; unauthenticated bytes
// never crash a rank, never make it take over 1 MiB and never join. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/store.h"

namespace gangway {

struct TcpStoreOptions {
  Secret secret;
  std::string job;  // separates jobs of one secret (and its restart count)
  int rank = 0;
  int size = 1;
  // Empty: an abstract Unix socket on this host. Else the address the server listens on or clients reach.
  std::string host;
  int port = 0;
  bool any_interface = false;   // the server may listen on 0.0.0.0 or ::, which is refused otherwise
  int64_t timeout_ms = 60'000;  // for connecting and for the handshake
};

// Rank 0 also starts the server thread, which lives as long as its store object does and until all ranks left or the
// timeout passed.
std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options);

}  // namespace gangway
