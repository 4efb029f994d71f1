// Host names as addresses, with a deadline.
//
// Thread rule: any thread.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/deadline.h"

namespace gangway {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

// Returns the addresses of `host`, which is a name or a number, with `port`. A temporary failure of the name
// service is tried again until the deadline. Calls the interrupt hook meanwhile. IO: the name is not known.
// TIMEOUT: the name service did not answer, or failed, until the deadline. `listening`: for a socket that
// accepts connections.
std::vector<SocketAddress> resolve(const std::string& host, int port, bool listening, Deadline deadline);

// Removes the brackets of an IPv6 address: "[::1]" gives "::1". Other texts stay as they are.
std::string without_brackets(const std::string& host);
// Returns "10.0.0.1:29501", or "[::1]:29501" for an IPv6 address.
std::string host_and_port(const std::string& host, int port);

}  // namespace gangway
