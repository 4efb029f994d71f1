// The stream sockets of the store: the address of a job's store, listening there, and connecting. All sockets
// are close-on-exec and non-blocking.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "base/deadline.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// The name of a job's abstract socket, without its leading zero byte. Only a process that knows the secret
// can compute it.
std::string abstract_name(const TcpStoreOptions& options);

// For messages: "10.0.0.1:29501", "[::1]:29501", or "this host".
std::string store_place(const TcpStoreOptions& options);

// Listens at the address of the store. If an earlier server still uses the address, it waits a while, then
// throws IO. INVALID_ARGUMENT: the address means all interfaces, which the options do not allow. TIMEOUT: the
// name service gave no address within the options' timeout.
Descriptor store_listen(const TcpStoreOptions& options);

// Tries once to connect. The result is empty if no process listens there (yet). IO: the address is wrong.
// TIMEOUT: the name service gave none until the deadline.
Descriptor store_connect(const TcpStoreOptions& options, Deadline deadline);

// Waits until `fd` is ready for `events` of poll(2), at most until the deadline, and calls the interrupt hook
// at least every 50 ms. Returns false if the deadline has passed.
bool wait_ready(int fd, short events, Deadline deadline);

}  // namespace gangway
