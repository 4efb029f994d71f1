#include "gang/network/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/deadline.h"
#include "base/error.h"

namespace gangway::network {
namespace {

// A host that does not answer for so long is lost. TCP asks again after 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s,
// so that a host that is away for 10 s is found again; kernels from 6.15 on ask every kAskMs.
constexpr int64_t kHostMs = 15'000;
constexpr int kAskMs = 2000;
constexpr int kRtoMaxMs = 44;           // TCP_RTO_MAX_MS; an older kernel does not know it
constexpr int64_t kShortestMs = 1'000;  // where liveness_ms asks for less
constexpr int64_t kResolveMs = 10'000;

Descriptor make_socket(int family) {
  Descriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

bool listen_on(const SocketAddress& address, Listener& out) {
  out.socket = make_socket(address.bytes.ss_family);
  if (!out.socket) return false;
  const int off = 0;
  if (address.bytes.ss_family == AF_INET6)
    setsockopt(out.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(out.socket.get(), address.get(), address.size) != 0 || listen(out.socket.get(), SOMAXCONN) != 0)
    return false;
  out.port = local_port(out.socket.get());
  return true;
}

}  // namespace

Listener listen_at(const std::string& address, const std::string& what) {
  Listener listener;
  int reason = EADDRNOTAVAIL;
  const Deadline deadline = Deadline::after_ms(kResolveMs);
  for (const SocketAddress& one :
       address.empty() ? every_address(0, deadline) : resolve(address, 0, true, deadline)) {
    if (listen_on(one, listener)) return listener;
    reason = errno;
  }
  fail_system(Code::io, text(what, " cannot listen at ", address.empty() ? "any address" : address), reason);
}

Descriptor begin_dial(const SocketAddress& address, int& reason) {
  Descriptor fd = make_socket(address.bytes.ss_family);
  if (fd && (connect(fd.get(), address.get(), address.size) == 0 || errno == EINPROGRESS)) return fd;
  reason = errno;
  return {};
}

void watch_host(int fd, int64_t liveness_ms) {
  const int64_t ms = liveness_ms > 0 ? std::clamp(liveness_ms, kShortestMs, kHostMs) : kHostMs;
  const int limit = static_cast<int>(ms), on = 1;
  const int pause = std::max(1, static_cast<int>(ms / 4000)), probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
  setsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &kAskMs, sizeof kAskMs);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &pause, sizeof pause);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace gangway::network
