// The output of the ranks: read as it comes, and written as fast as its reader takes it.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "tools/attempt.h"

namespace gangway::tools {
namespace {

constexpr int64_t kDrainMs = 1000;  // for output of processes that outlive their rank

}  // namespace

bool Stream::read_available() {
  std::array<char, 16384> bytes;
  for (int reads = 0; fd >= 0; ++reads) {
    if (reads == 4) return true;
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n > 0) {
      lines->feed({bytes.data(), static_cast<size_t>(n)});
      if (n < static_cast<ssize_t>(bytes.size())) return true;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      return true;
    } else {
      end();
    }
  }
  return false;
}

void Stream::end() {
  if (fd < 0) return;
  lines->finish();
  close(fd);
  fd = -1;
}

// Makes the pipes of a rank's output and returns the rank's ends of them.
std::array<int, 2> Attempt::open_streams(RankProcess& rank) {
  std::array<int, 2> ends = {1, 2};
  for (size_t i = 0; options_.prefix && i < 2; ++i) {
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0) fail_system(Code::io, "no pipe for a rank's output", errno);
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    const int fd = static_cast<int>(i) + 1;
    const bool terminal = isatty(fd) != 0;
    Stream& stream = i == 0 ? rank.out : rank.err;
    stream.fd = pipe[0];
    stream.lines.emplace(LineSink{&queues_[i], terminal, terminal ? &drawing_ : nullptr},
                         text("[", options_.node.first_rank + rank.rank, "] "), rank.rank == 0);
    ends[i] = pipe[1];
  }
  return ends;
}

// Reads what is left in the pipes, without waiting for processes that outlive their rank.
void Attempt::drain() {
  const Deadline deadline = Deadline::after_ms(kDrainMs);
  for (RankProcess& rank : ranks_)
    for (Stream* const stream : {&rank.out, &rank.err}) {
      while (stream->read_available() && !deadline.passed()) {
        pollfd one{stream->fd, POLLIN, 0};
        poll(&one, 1, static_cast<int>(deadline.left_ms(kDrainMs)));
      }
      stream->end();
    }
}

// Writes for as long as the reader takes, or only for kDrainMs after a request to end.
void Attempt::flush() {
  Deadline deadline = Deadline::never();
  while ((!queues_[0].empty() || !queues_[1].empty()) && !deadline.passed()) {
    if (end_requests_ > 0 && deadline.is_never()) deadline = Deadline::after_ms(kDrainMs);
    pollfd fds[3] = {{signals_.fd, POLLIN, 0}, {}, {}};
    for (size_t i = 0; i < 2; ++i) fds[i + 1] = {queues_[i].empty() ? -1 : queues_[i].fd(), POLLOUT, 0};
    poll(fds, 3, static_cast<int>(deadline.left_ms(60'000)));
    for (size_t i = 0; i < 2; ++i)
      if (fds[i + 1].revents != 0) queues_[i].write_some();
    if (fds[0].revents != 0) take_signals();
  }
}

}  // namespace gangway::tools
