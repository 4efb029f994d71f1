// The options of a store for processes: its address, and the secret of those who may join.
//
// Thread rule: values of one thread.
#pragma once

#include <cstdint>
#include <string>

#include "gang/rendezvous/hmac.h"

namespace gangway {

struct TcpStoreOptions {
  Secret secret;
  std::string job;  // separates jobs with one secret; includes the restart count
  int rank = 0;
  int size = 1;
  // Empty: an abstract Unix socket on this host. Otherwise the address that the server listens on, or that
  // clients connect to.
  std::string host;
  int port = 0;
  bool any_interface = false;  // allows the server to listen on 0.0.0.0 or ::
  // The server listens at those addresses of `host` that are no loopback; if it has no other (Debian gives a
  // host's own name the address 127.0.1.1), at every address.
  bool not_loopback = false;
  int64_t timeout_ms = 60'000;  // for connecting and for the handshake
};

}  // namespace gangway
