// The stream sockets of the store: where a job meets, how to listen there, and how to connect. All are
// close-on-exec and never block.
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

// For messages: "10.0.0.1:29501", or "this host".
std::string store_place(const TcpStoreOptions& options);

// Waits a little for an address that an earlier server has not given back yet; then IO. INVALID_ARGUMENT for
// all interfaces at once, unless that was asked for.
Descriptor store_listen(const TcpStoreOptions& options);

// Makes one attempt. Empty if no process listens there (yet); IO for an address that cannot be right.
Descriptor store_connect(const TcpStoreOptions& options, Deadline deadline);

// Waits until `fd` is ready for `events` of poll(2), at most until the deadline, and asks the interrupt hook
// at least every 50 ms. Returns false if the deadline has passed.
bool wait_ready(int fd, short events, Deadline deadline);

}  // namespace gangway
