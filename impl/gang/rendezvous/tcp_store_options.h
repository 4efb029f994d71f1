// Where a store between processes listens, and who may join it. Thread rule: values of one thread.
#pragma once

#include <cstdint>
#include <string>

#include "gang/rendezvous/hmac.h"

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

}  // namespace gangway
