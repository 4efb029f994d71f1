// TCP sockets between ranks: listening, connecting, and addresses as texts.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>

#include "gang/descriptor.h"
#include "gang/rendezvous/resolve.h"

namespace gangway::network {

struct Listener {
  Descriptor socket;
  int port = 0;  // chosen by the system
};

// Listens at `address`, a number; "" means every interface. `what` begins the text of an error (IO).
Listener listen_at(const std::string& address, const std::string& what);

// Begins to connect, without waiting: the socket takes bytes once it is connected. If the result is empty,
// `reason` is the errno.
Descriptor begin_dial(const SocketAddress& address, int& reason);

// Makes a control connection notice a lost host: it ends when the peer's host has not answered for so long.
void watch_host(int fd, int64_t liveness_ms);

}  // namespace gangway::network
