// The socket of a handover: an abstract Unix socket at which one process hands a descriptor to each process of the same
// user that shows a token.
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

// --- the one that hands over ---
Descriptor listen_at(const std::string& name);

// A connection that has not shown its token yet.
struct Pending {
  Descriptor socket;
  Deadline deadline;
  std::array<char, kToken> token{};
  size_t have = 0;
};
// Takes connections that wait at the listener, up to a turn's worth.
void take_in(const Descriptor& listener, std::vector<Pending>& pending);
// Reads what has come. True: the connection is over, one way or the other; `served` counts those that got `fd`.
bool serve(Pending& p, const std::string& token, int fd, int& served);

// --- the others ---
// A connection to the listener; none if this host has no such name. With a full queue there: until the deadline.
Descriptor reach(const std::string& name, Deadline deadline);
bool same_user(int fd);
bool readable(int fd, Deadline deadline);
int receive_fd(int from);  // -1: none came

}  // namespace gangway::host
