#include "tools/launch.h"

#include <net/if.h>
#include <poll.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/interfaces.h"
#include "tools/attempt.h"

namespace gangway::tools {
namespace {

// nohup starts a program that ignores SIGHUP, and a shell one in the background that ignores SIGINT. The job
// must outlive these signals, so the launcher does not take them for a request to end.
bool stays_ignored(int signal) {
  struct sigaction now {};
  return (signal == SIGHUP || signal == SIGINT) && sigaction(signal, nullptr, &now) == 0 &&
         now.sa_handler == SIG_IGN;
}

// The ranks of several hosts meet by GANGWAY_INTERFACE, which may be a name or an address, or by the way to
// the first host.
std::string interface_of_node(const Node& node) {
  const char* const wish = std::getenv("GANGWAY_INTERFACE");
  if (wish == nullptr || *wish == '\0') return interface_towards(node.master);
  return if_nametoindex(wish) != 0 ? wish : interface_with(wish);
}

}  // namespace

std::optional<Failure> Attempt::run() {
  start_all();
  while (running() > 0) step();
  drain();
  flush();
  if (failure_ && (end_requests_ > 0 || warned_)) failure_->may_restart = false;
  return failure_;
}

void Attempt::step() {
  std::vector<pollfd> fds{{signals_.fd, POLLIN, 0}};
  for (const OutputQueue& queue : queues_)
    fds.push_back({queue.empty() ? -1 : queue.fd(), POLLOUT, 0});  // poll ignores a descriptor of -1
  fds.push_back({options_.node.world != 0 && !input_ended_ ? 0 : -1, POLLIN, 0});
  std::vector<Stream*> streams;
  for (RankProcess& rank : ranks_)
    for (Stream* const stream : {&rank.out, &rank.err})
      if (stream->fd >= 0 && !queues_[stream == &rank.err].full()) {
        fds.push_back({stream->fd, POLLIN, 0});
        streams.push_back(stream);
      }
  int64_t longest = end_at_.left_ms(kill_at_.left_ms(deadline_.left_ms(60'000)));
  longest = deaf_at_.left_ms(end_by_.left_ms(longest));
  for (const RankProcess& rank : ranks_)
    if (!rank.postponed.empty()) longest = std::min(longest, kLookMs);
  poll(fds.data(), fds.size(), static_cast<int>(decide_at_.left_ms(longest) + 1));
  for (size_t i = 0; i < 2; ++i)
    if (fds[i + 1].revents != 0) queues_[i].write_some();
  for (size_t i = 0; i < streams.size(); ++i)
    if (fds[i + 4].revents != 0) streams[i]->read_available();
  if (fds[3].revents != 0) look_at_input();
  if (fds[0].revents != 0) take_signals();
  ask_postponed();
  reap();
  decide();
  if (!failure_ && deadline_.passed())
    fail_job(
        {124, text("the job ran longer than ", options_.timeout_s, " s; ending all ranks"), false, false});
  if (end_at_.passed()) end_all();
  enforce_end_request();
  if (kill_at_.passed()) {
    signal_all(SIGKILL);
    kill_at_ = Deadline::never();
  }
}

// Fails the job when the cause is known. A rank that was killed by a signal is a cause at once. After any
// other failure, ranks that are still exiting have some time to become a likelier cause.
void Attempt::decide() {
  if (!cause_ || failure_) return;
  const bool killed = cause_->status > 128;
  if (!killed && running() > 0 && !decide_last_.passed()) {
    if (!decide_at_.passed()) return;
    for (const RankProcess& rank : ranks_)
      if (rank.running && is_exiting(rank.pid)) {
        decide_at_ = Deadline::after_ms(10);
        return;
      }
  }
  decide_at_ = Deadline::never();
  fail_job(*std::exchange(cause_, std::nullopt));
}

void Attempt::fail_job(Failure failure) {
  const int others = running();
  if (drawing_) queues_[1].add("\n");
  drawing_ = false;
  const bool grace = failure.grace && options_.grace_s > 0 && end_requests_ == 0;
  const std::string when = grace ? text(" in ", options_.grace_s, " s") : "";
  say(others == 0 || !failure.grace
          ? failure.message
          : text(failure.message, "; ending the other ", others, others == 1 ? " rank" : " ranks", when));
  failure_ = std::move(failure);
  if (!grace) return end_all();
  end_at_ = Deadline::after_ms(static_cast<int64_t>(options_.grace_s * 1000));
}

void Attempt::end_all() {
  end_at_ = Deadline::never();
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped rank cannot end
  kill_at_ = Deadline::after_ms(kKillMs);
}

int launch(const LaunchOptions& options) {
  Signals signals;
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : kForwarded)
    if (!stays_ignored(signal)) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, &signals.mask);
  struct sigaction ignore {};
  // A reader that closes its end stops getting output, but does not end the job.
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &signals.pipe);
  signal(SIGCHLD, SIG_DFL);  // the parent process may have had it ignored
  signals.fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals.fd < 0) fail_system(Code::io, "no signalfd", errno);
  Watchdog watchdog(static_cast<size_t>(options.ranks()));
  const bool is_node = options.node.world != 0;
  const int secret = is_node ? secret_from_input() : make_secret();
  const std::string job = is_node ? options.node.job : make_job();
  if (is_node) tell_nccl(interface_of_node(options.node));  // the ranks may call NCCL before they make a gang
  const Deadline deadline = options.timeout_s > 0
                                ? Deadline::after_ms(static_cast<int64_t>(options.timeout_s * 1000))
                                : Deadline::never();
  for (int restart = 0;; ++restart) {
    const std::optional<Failure> failure =
        Attempt(options, signals, watchdog, secret, job, restart, deadline).run();
    if (!failure) return 0;
    if (!failure->may_restart || restart >= options.max_restarts) return failure->status;
    std::fprintf(stderr, "gangrun: restart %d of %d\n", restart + 1, options.max_restarts);
  }
}

}  // namespace gangway::tools
