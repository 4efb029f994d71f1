// The network interfaces of this host: by which of them a connection or another host is reached.
//
// Thread rule: any thread; tell_nccl() changes the environment, which no other thread may read meanwhile.
#pragma once

#include <string>

namespace gangway {

// Returns the name of the interface that has this address, which is a number; "" if none has it, or if it is
// a loopback.
std::string interface_with(const std::string& address);

// Returns the name of the interface by which the system would reach `host`, a name or a number; "" if it is
// not known, or if it is a loopback. Sends nothing. A name service that does not answer delays it by the time
// that the resolver gives it.
std::string interface_towards(const std::string& host);

// Makes NCCL use exactly this interface between hosts, unless it is "" or the user has set
// NCCL_SOCKET_IFNAME. NCCL reads the variable at its first call in the process. Only the module for CUDA and
// gangrun call it, because the core must not change the environment.
void tell_nccl(const std::string& interface);

}  // namespace gangway
