// Stream sockets of the store: where a job meets, listening there, connecting there. All are close-on-exec
// and never block. Thread rule: any thread.
#pragma once

#include <string>

#include "base/deadline.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// Name of the abstract socket of a job (without its leading zero byte). Only who knows the secret can tell
// it.
std::string abstract_name(const TcpStoreOptions& options);

// For messages: "10.0.0.1:29501", or "this host".
std::string store_place(const TcpStoreOptions& options);

// Waits a little for an address that a former server has not given back yet; then IO. INVALID_ARGUMENT for every
// interface at once, unless that was asked for.
Descriptor store_listen(const TcpStoreOptions& options);

// One attempt. Empty when no process listens there (yet); IO for an address that cannot be right.
Descriptor store_connect(const TcpStoreOptions& options, Deadline deadline);

// Waits until `fd` is ready for `events` of poll(2), at most until the deadline, asking the interrupt hook at
// least every 50 ms. False when the deadline has passed.
bool wait_ready(int fd, short events, Deadline deadline);

}  // namespace gangway
