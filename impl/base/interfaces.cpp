#include "base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace gangway {
namespace {

constexpr char kAnyPort[] = "9";  // nothing is sent, but a datagram socket connects to a port

bool same_number(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

std::string interface_of(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    if ((one->ifa_flags & IFF_LOOPBACK) == 0 && same_number(one->ifa_addr, address)) return one->ifa_name;
  return "";
}

using Found = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Found look_up(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), kAnyPort, &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

}  // namespace

std::string interface_with(const std::string& address) {
  const Found number = look_up(address, AI_NUMERICHOST);
  return number == nullptr ? "" : interface_of(number->ai_addr);
}

std::string interface_towards(const std::string& host) {
  const Found addresses = look_up(host, 0);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const int fd = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool has_route = fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
                           getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    if (fd >= 0) close(fd);
    if (!has_route) continue;
    const std::string name = interface_of(reinterpret_cast<const sockaddr*>(&own));
    if (!name.empty()) return name;
  }
  return "";
}

}  // namespace gangway
