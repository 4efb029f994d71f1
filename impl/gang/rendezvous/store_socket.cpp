#include "gang/rendezvous/store_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/resolve.h"
#include "gang/rendezvous/store_common.h"

namespace gangway {
namespace {

constexpr int64_t kBindMs = 2000;
constexpr int64_t kConnectMs = 10'000;  // how long one address may take to accept a connection

SocketAddress abstract_address(const TcpStoreOptions& options) {
  const std::string name = abstract_name(options);
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  GW_CHECK(name.size() + 1, <=, sizeof local.sun_path);
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  SocketAddress out;
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  std::memcpy(&out.bytes, &local, out.size);
  return out;
}

std::vector<SocketAddress> addresses(const TcpStoreOptions& options, bool listening, Deadline deadline) {
  if (options.host.empty()) return {abstract_address(options)};
  return resolve(options.host, options.port, listening, deadline);
}

Descriptor make_socket(const SocketAddress& address) {
  Descriptor fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_system(Code::io, "store: no socket", errno);
  const int on = 1;
  if (address.bytes.ss_family != AF_UNIX) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int off = 0;
  if (address.bytes.ss_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return fd;
}

bool is_any_interface(const SocketAddress& address) {
  const auto* const four = reinterpret_cast<const sockaddr_in*>(&address.bytes);
  const auto* const six = reinterpret_cast<const sockaddr_in6*>(&address.bytes);
  return (address.bytes.ss_family == AF_INET && four->sin_addr.s_addr == htonl(INADDR_ANY)) ||
         (address.bytes.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr));
}

// Returns the addresses that are no loopback; if there are none, those that mean every interface.
std::vector<SocketAddress> reachable(std::vector<SocketAddress> all, int port, Deadline deadline) {
  std::erase_if(all, is_loopback);
  return !all.empty() ? all : every_address(port, deadline);
}

}  // namespace

std::string abstract_name(const TcpStoreOptions& options) {
  return "gangway-" + hex(hmac_sha256(options.secret, {"store name", options.job}));
}

std::string store_place(const TcpStoreOptions& options) {
  return options.host.empty() ? "this host" : host_and_port(options.host, options.port);
}

Descriptor store_listen(const TcpStoreOptions& options) {
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  std::vector<SocketAddress> all = addresses(options, true, deadline);
  if (!options.any_interface && std::any_of(all.begin(), all.end(), is_any_interface))
    fail(Code::invalid_argument, "store: rank 0 would listen on every interface of its host (", options.host,
         ", port ", options.port, "); name one address in GANGWAY_INTERFACE");
  if (options.not_loopback) all = reachable(std::move(all), options.port, deadline);
  StoreBackoff backoff(Deadline::after_ms(deadline.left_ms(kBindMs)));
  while (true) {
    int reason = EADDRNOTAVAIL;
    for (const SocketAddress& address : all) {
      Descriptor fd = make_socket(address);
      const int on = 1;
      // This allows addresses in TIME_WAIT only: Linux still refuses a second listener.
      if (address.bytes.ss_family != AF_UNIX) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (bind(fd.get(), address.get(), address.size) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd;
      reason = errno;
    }
    if (reason != EADDRINUSE || !backoff.pause())
      fail_system(Code::io,
                  text("store: rank 0 cannot listen on ", store_place(options),
                       reason == EADDRINUSE
                           ? "; is another process rank 0 of this job? GANGWAY_JOB or MASTER_PORT keeps "
                             "jobs of one user apart"
                           : ""),
                  reason);
  }
}

Descriptor store_connect(const TcpStoreOptions& options, Deadline deadline) {
  for (const SocketAddress& address : addresses(options, false, deadline)) {
    Descriptor fd = make_socket(address);
    const Deadline attempt = Deadline::after_ms(deadline.left_ms(kConnectMs));
    if (connect(fd.get(), address.get(), address.size) == 0) return fd;
    if (errno == EINPROGRESS && wait_ready(fd.get(), POLLOUT, attempt)) {
      int reason = 0;
      socklen_t size = sizeof reason;
      if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &reason, &size) == 0 && reason == 0) return fd;
    }
  }
  return {};
}

bool wait_ready(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(deadline.left_ms(50)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_system(Code::io, "store: poll failed", errno);
    if (deadline.passed()) return false;
    poll_interrupt();
  }
}

}  // namespace gangway
