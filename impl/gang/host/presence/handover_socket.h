// The socket of the handover: an abstract Unix socket at which one process sends a descriptor to every
// process of the same user that sends a token.
//
// Thread rule: values of one thread.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/descriptor.h"

namespace gangway::host {

constexpr size_t kToken = 32;

std::string random_bytes(size_t n);
std::string hex(const std::string& bytes);

// --- for the process that sends the descriptor ---
Descriptor listen_at(const std::string& name);

// A connection that has not sent its token yet.
struct Pending {
  Descriptor socket;
  Deadline deadline;
  std::array<char, kToken> token{};
  size_t have = 0;
};
// Accepts waiting connections, a limited number in each call.
void take_in(const Descriptor& listener, std::vector<Pending>& pending);
// Reads what has arrived. Returns whether the connection has ended, for whatever reason; `served` counts the
// connections that got `fd`.
bool serve(Pending& p, const std::string& token, int fd, int& served);

// --- for the processes that receive it ---
// Connects to the listener; the result is empty if this host has no socket of that name. If the listener's
// queue is full, it tries until the deadline.
Descriptor reach(const std::string& name, Deadline deadline);
bool same_user(int fd);
bool readable(int fd, Deadline deadline);
int receive_fd(int from);  // -1: no descriptor came

}  // namespace gangway::host
