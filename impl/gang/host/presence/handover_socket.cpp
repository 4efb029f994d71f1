#include "gang/host/presence/handover_socket.h"

#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace gangway::host {
namespace {

constexpr size_t kPending = 64;     // the most connections that have not sent their token yet
constexpr int64_t kTokenMs = 2000;  // the time that a connection has to send it
constexpr int kAtOnce = 16;         // how many connections one call accepts

struct Address {
  sockaddr_un un{};
  socklen_t length = 0;
  explicit Address(const std::string& name) {
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path + 1, name.data(), name.size());  // a leading zero byte makes the name abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
};

// One byte of data, with a descriptor attached.
struct DescriptorMessage {
  char byte = 1;
  iovec io{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  DescriptorMessage() {
    header.msg_iov = &io;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

void send_fd(int to, int fd) {
  DescriptorMessage message;
  cmsghdr* const c = CMSG_FIRSTHDR(&message.header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  sendmsg(to, &message.header, MSG_NOSIGNAL);  // if the peer has gone, its absence is noticed later
}

}  // namespace

Descriptor listen_at(const std::string& name) {
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(name);
  if (listener.get() < 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.un), address.length) != 0 ||
      listen(listener.get(), 128) != 0)
    fail_system(Code::gang, "host engine: listening for the other ranks", errno);
  return listener;
}

std::string random_bytes(size_t n) {
  std::string out(n, '\0');
  for (size_t have = 0; have < n;) {
    const ssize_t got = getrandom(out.data() + have, n - have, 0);
    if (got < 0 && errno != EINTR) fail_system(Code::gang, "host engine: getrandom", errno);
    if (got > 0) have += static_cast<size_t>(got);
  }
  return out;
}

std::string hex(const std::string& bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

int receive_fd(int from) {
  DescriptorMessage message;
  if (recvmsg(from, &message.header, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* const c = CMSG_FIRSTHDR(&message.header);
  if (c == nullptr || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
  return fd;
}

bool serve(Pending& p, const std::string& token, int fd, int& served) {
  const ssize_t got = recv(p.socket.get(), p.token.data() + p.have, kToken - p.have, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
  if (got > 0) p.have += static_cast<size_t>(got);
  if (p.have < kToken) return p.deadline.passed();
  if (CRYPTO_memcmp(p.token.data(), token.data(), kToken) == 0) {
    send_fd(p.socket.get(), fd);
    ++served;
  }
  return true;
}

void take_in(const Descriptor& listener, std::vector<Pending>& pending) {
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor next(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (next.get() < 0) return;
    if (!same_user(next.get())) continue;
    // A rank sends its token at once, so the oldest connection is most likely not from a rank.
    if (pending.size() == kPending) pending.erase(pending.begin());
    pending.push_back({std::move(next), Deadline::after_ms(kTokenMs)});
  }
}

Descriptor reach(const std::string& name, Deadline deadline) {
  const Address address(name);
  for (;;) {
    Descriptor to(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (to.get() < 0) fail_system(Code::gang, "host engine: no socket", errno);
    if (connect(to.get(), reinterpret_cast<const sockaddr*>(&address.un), address.length) == 0) return to;
    if (errno == ECONNREFUSED) return Descriptor();
    if (errno != EAGAIN && errno != EINTR) fail_system(Code::gang, "host engine: reaching rank 0", errno);
    if (deadline.passed()) fail(Code::timeout, "host engine: rank 0 did not take the connection in time");
    poll_interrupt();
    usleep(1000);
  }
}

bool readable(int fd, Deadline deadline) {
  for (;;) {
    pollfd one{fd, POLLIN, 0};
    if (poll(&one, 1, static_cast<int>(deadline.left_ms(50))) > 0) return true;
    if (deadline.passed()) return false;
    poll_interrupt();
  }
}

}  // namespace gangway::host
