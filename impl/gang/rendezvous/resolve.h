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

// Return addresses as numbers: of a socket address, and of the two ends of a connected socket; "" for other
// kinds of sockets. An IPv4 address that came to an IPv6 socket is an IPv4 address.
std::string number_of(const sockaddr* address);
std::string local_number(int fd);
std::string peer_number(int fd);
int local_port(int fd);  // 0 for other kinds of sockets
bool is_loopback(const SocketAddress& address);
bool is_loopback_number(const std::string& address);
// Returns the addresses that mean every interface: IPv6's, which takes IPv4 too, then IPv4's.
std::vector<SocketAddress> every_address(int port, Deadline deadline);
// Returns the first address of this host that is no loopback and not of one link only (fe80::), as a number;
// "" if there is none.
std::string first_address();
// Returns a port of this address of the host that is free now. IO: it has no such address.
int free_port(const std::string& address);
// Returns the address that GANGWAY_INTERFACE means: `setting` itself, or, if an interface of this host has
// that name, the interface's first address. INVALID_ARGUMENT: that interface has none.
std::string interface_address(const std::string& setting);

// Removes the brackets of an IPv6 address: "[::1]" gives "::1". Other texts stay as they are.
std::string without_brackets(const std::string& host);
// Returns "10.0.0.1:29501", or "[::1]:29501" for an IPv6 address.
std::string host_and_port(const std::string& host, int port);

}  // namespace gangway
