#include "tools/launch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "tools/line_prefix.h"
#include "tools/output_queue.h"

namespace gangway::tools {
namespace {

constexpr int64_t kGraceMs = 5000;  // between SIGTERM and SIGKILL
constexpr int64_t kDrainMs = 1000;  // for output of processes that outlive their rank
// A killed rank is a zombie only when its memory is gone, and who heard of its death may have ended before:
// so long the cause may still come, and longer while a rank is on its way out.
constexpr int64_t kCauseMs = 200, kExitingMs = 5000;
constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

template <typename Bytes>
Bytes random_of() {
  Bytes out;
  if (getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size()))
    fail_system(Code::io, "getrandom failed", errno);
  return out;
}

// Sealed and close-on-exec; only the ranks get it.
int make_secret() {
  const int fd = memfd_create("gangway-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail_system(Code::io, "memfd_create failed", errno);
  const auto secret = random_of<std::array<uint8_t, 32>>();
  if (write(fd, secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail_system(Code::io, "cannot write the secret", errno);
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return fd;
}

std::string make_job() {
  std::string out = "gangrun-";
  for (const uint8_t byte : random_of<std::array<uint8_t, 8>>()) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    out += digits;
  }
  return out;
}

// For programs that want one; gangway itself takes no port on one host.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (fd >= 0) close(fd);
  return found ? ntohs(address.sin_port) : 29500;
}

struct Stream {
  int fd = -1;  // the launcher's end of a pipe
  std::optional<LinePrefix> lines;

  // Takes what is there, as much as a pipe holds; false at the end.
  bool pump() {
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

  void end() {
    if (fd < 0) return;
    lines->finish();
    close(fd);
    fd = -1;
  }
};

// The kernel is taking the process down: PF_EXITING among the flags, the 7th field after the name.
bool exiting(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  unsigned flags = 0;
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos &&
         std::sscanf(stat.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
         (flags & 4) != 0;
}

struct RankProcess {
  int rank = 0;
  pid_t pid = 0;
  bool running = false;
  Stream out, err;
};

struct Failure {
  int status = 0;
  std::string words;
  bool may_restart = true;
};

// Where signals are read, and what the ranks get back of what was changed for it.
struct Signals {
  int fd = -1;
  sigset_t mask;
  struct sigaction pipe;
};

// One attempt of the job.
class Attempt {
 public:
  Attempt(const LaunchOptions& options, const Signals& signals, int secret, const std::string& job,
          int restart, Deadline deadline)
      : options_(options),
        signals_(signals),
        secret_(secret),
        job_(job),
        restart_(restart),
        deadline_(deadline),
        ranks_(static_cast<size_t>(options.ranks)) {}

  std::optional<Failure> run();

 private:
  void start_all();
  void start(RankProcess& rank);
  [[noreturn]] void become(const RankProcess& rank, const std::array<int, 2>& ends, int report);
  void step();
  void take_signals();
  void reap();
  void decide();
  void say(const std::string& words) { queues_[1].add(text("gangrun: ", words, "\n")); }
  void flush();
  void fail_job(Failure failure);
  void end_rank(RankProcess& rank, const siginfo_t& facts);
  void signal_all(int signal);
  void drain();
  int running() const {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.running; }));
  }

  const LaunchOptions& options_;
  const Signals& signals_;
  const int secret_;
  const std::string job_;
  const int restart_;
  const Deadline deadline_;
  const int port_ = free_port();
  std::vector<RankProcess> ranks_;
  std::array<OutputQueue, 2> queues_{OutputQueue(1), OutputQueue(2)};
  std::optional<Failure> cause_;  // the likeliest so far
  Deadline decide_at_ = Deadline::never(), decide_last_ = Deadline::never();
  std::optional<Failure> failure_;
  Deadline kill_at_ = Deadline::never();
  int asked_to_end_ = 0;  // SIGINT, SIGTERM and SIGHUP that were forwarded
  bool drawing_ = false;  // a progress line stands on the terminal
};

std::optional<Failure> Attempt::run() {
  start_all();
  while (running() > 0) step();
  drain();
  flush();
  if (failure_ && asked_to_end_ > 0) failure_->may_restart = false;
  return failure_;
}

void Attempt::start_all() {
  try {
    for (int i = 0; i < options_.ranks && !failure_; ++i) {
      ranks_[static_cast<size_t>(i)].rank = i;
      start(ranks_[static_cast<size_t>(i)]);
    }
  } catch (...) {  // what the ranks so far have started goes with them
    signal_all(SIGKILL);
    for (RankProcess& rank : ranks_)
      if (rank.running) waitpid(rank.pid, nullptr, 0);
    throw;
  }
}

void Attempt::start(RankProcess& rank) {
  std::array<int, 2> ends = {1, 2};  // the rank's ends of its streams
  for (size_t i = 0; options_.prefix && i < 2; ++i) {
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0) fail_system(Code::io, "no pipe for a rank's output", errno);
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    const int fd = static_cast<int>(i) + 1;
    const bool terminal = isatty(fd) != 0;
    Stream& stream = i == 0 ? rank.out : rank.err;
    stream.fd = pipe[0];
    stream.lines.emplace(LineSink{&queues_[i], terminal, terminal ? &drawing_ : nullptr},
                         text("[", rank.rank, "] "), rank.rank == 0);
    ends[i] = pipe[1];
  }
  int report[2];  // closed by a successful exec
  if (pipe2(report, O_CLOEXEC) != 0) fail_system(Code::io, "no pipe", errno);
  const pid_t launcher = getpid();
  rank.pid = fork();
  if (rank.pid < 0) fail_system(Code::io, text("cannot start rank ", rank.rank), errno);
  if (rank.pid == 0) {
    // The rank dies with the launcher, also when that was killed before this line.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    become(rank, ends, report[1]);
  }
  setpgid(rank.pid, rank.pid);  // here as well: a signal may be forwarded before the child's own call
  rank.running = true;
  close(report[1]);
  if (options_.prefix)
    for (const int end : ends) close(end);
  int reason = 0;
  const bool refused = read(report[0], &reason, sizeof reason) == sizeof reason;
  close(report[0]);
  if (!refused) return;
  waitpid(rank.pid, nullptr, 0);
  rank.running = false;
  fail_job({reason == ENOENT ? 127 : 126, text("cannot run ", options_.command[0], ": ", strerror(reason)),
            false});
}

// In the child. A group of its own, so that a rank that is a shell script is ended with all that it started.
void Attempt::become(const RankProcess& rank, const std::array<int, 2>& ends, int report) {
  setpgid(0, 0);
  if (rank.rank != 0 || isatty(0) != 0) {  // a background group may not read the terminal
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, 0);
  }
  for (int i = 0; i < 2; ++i)
    if (ends[static_cast<size_t>(i)] != i + 1) dup2(ends[static_cast<size_t>(i)], i + 1);
  fcntl(secret_, F_SETFD, 0);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank.rank));
  set("WORLD_SIZE", std::to_string(options_.ranks));
  set("LOCAL_RANK", std::to_string(rank.rank));
  set("LOCAL_WORLD_SIZE", std::to_string(options_.ranks));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port_));
  set("GANGWAY_SECRET_FD", std::to_string(secret_));
  set("GANGWAY_JOB", job_);
  set("GANGWAY_RESTART_COUNT", std::to_string(restart_));
  std::vector<char*> words;
  for (const std::string& word : options_.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &signals_.mask, nullptr);
  sigaction(SIGPIPE, &signals_.pipe, nullptr);
  execvp(words[0], words.data());
  const int reason = errno;
  (void)!write(report, &reason, sizeof reason);
  _exit(127);
}

void Attempt::step() {
  std::vector<pollfd> fds{{signals_.fd, POLLIN, 0}};
  for (const OutputQueue& queue : queues_)
    fds.push_back({queue.empty() ? -1 : queue.fd(), POLLOUT, 0});  // poll passes over -1
  std::vector<Stream*> streams;
  for (RankProcess& rank : ranks_)
    for (Stream* const stream : {&rank.out, &rank.err})
      if (stream->fd >= 0 && !queues_[stream == &rank.err].full()) {
        fds.push_back({stream->fd, POLLIN, 0});
        streams.push_back(stream);
      }
  const int64_t longest = kill_at_.left_ms(deadline_.left_ms(60'000));
  poll(fds.data(), fds.size(), static_cast<int>(decide_at_.left_ms(longest) + 1));
  for (size_t i = 0; i < 2; ++i)
    if (fds[i + 1].revents != 0) queues_[i].write_some();
  for (size_t i = 0; i < streams.size(); ++i)
    if (fds[i + 3].revents != 0) streams[i]->pump();
  if (fds[0].revents != 0) take_signals();
  reap();
  decide();
  if (!failure_ && deadline_.passed())
    fail_job({124, text("the job ran longer than ", options_.timeout_s, " s; ending all ranks"), false});
  if (kill_at_.passed()) {
    signal_all(SIGKILL);
    kill_at_ = Deadline::never();
  }
}

void Attempt::take_signals() {
  signalfd_siginfo facts;
  while (read(signals_.fd, &facts, sizeof facts) == sizeof facts) {
    const int signal = static_cast<int>(facts.ssi_signo);
    if (signal == SIGCHLD) continue;
    const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    if (ends && ++asked_to_end_ == 3) {
      say("third request to end: killing all ranks");
      signal_all(SIGKILL);
    } else {
      signal_all(signal);
    }
  }
}

void Attempt::reap() {
  for (RankProcess& rank : ranks_) {
    if (!rank.running) continue;
    siginfo_t facts{};
    // The zombie keeps its group's number ours until the group has been dealt with.
    if (waitid(P_PID, static_cast<id_t>(rank.pid), &facts, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        facts.si_pid != 0)
      end_rank(rank, facts);
  }
}

void Attempt::end_rank(RankProcess& rank, const siginfo_t& facts) {
  const bool killed = facts.si_code != CLD_EXITED;
  const bool failed = killed || facts.si_status != 0;
  if (failed || failure_) kill(-rank.pid, SIGKILL);
  waitpid(rank.pid, nullptr, 0);
  rank.running = false;
  rank.out.pump();  // its last words come before ours
  rank.err.pump();
  if (!failed || failure_) return;
  // One killed by a signal is likelier the cause than one that exited, which may have heard of it.
  if (cause_ && (!killed || cause_->status > 128)) return;
  if (!cause_) {
    decide_at_ = Deadline::after_ms(kCauseMs);
    decide_last_ = Deadline::after_ms(kExitingMs);
  }
  const char* const name = killed ? sigabbrev_np(facts.si_status) : nullptr;
  cause_ = Failure{
      killed ? 128 + facts.si_status : facts.si_status,
      killed ? text("rank ", rank.rank, " (process ", rank.pid, ") was killed by signal ", facts.si_status,
                    " (SIG", name != nullptr ? name : "?", ", ", strsignal(facts.si_status), ")")
             : text("rank ", rank.rank, " (process ", rank.pid, ") exited with code ", facts.si_status),
      true};
}

// The job fails once the cause can be told.
void Attempt::decide() {
  if (!cause_ || failure_) return;
  const bool killed = cause_->status > 128;
  if (!killed && running() > 0 && !decide_last_.passed()) {
    if (!decide_at_.passed()) return;
    for (const RankProcess& rank : ranks_)
      if (rank.running && exiting(rank.pid)) {
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
  say(others == 0 || !failure.may_restart
          ? failure.words
          : text(failure.words, "; ending the other ", others, others == 1 ? " rank" : " ranks"));
  failure_ = std::move(failure);
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped rank cannot end
  kill_at_ = Deadline::after_ms(kGraceMs);
}

void Attempt::signal_all(int signal) {
  for (const RankProcess& rank : ranks_)
    if (rank.running) kill(-rank.pid, signal);
}

// What is still in the pipes; a process that outlives its rank is not waited for.
void Attempt::drain() {
  const Deadline deadline = Deadline::after_ms(kDrainMs);
  for (RankProcess& rank : ranks_)
    for (Stream* const stream : {&rank.out, &rank.err}) {
      while (stream->pump() && !deadline.passed()) {
        pollfd one{stream->fd, POLLIN, 0};
        poll(&one, 1, static_cast<int>(deadline.left_ms(kDrainMs)));
      }
      stream->end();
    }
}

// As long as the reader takes; a short while when somebody asked for the end.
void Attempt::flush() {
  Deadline deadline = Deadline::never();
  while ((!queues_[0].empty() || !queues_[1].empty()) && !deadline.passed()) {
    if (asked_to_end_ > 0 && deadline.is_never()) deadline = Deadline::after_ms(kDrainMs);
    pollfd fds[3] = {{signals_.fd, POLLIN, 0}, {}, {}};
    for (size_t i = 0; i < 2; ++i) fds[i + 1] = {queues_[i].empty() ? -1 : queues_[i].fd(), POLLOUT, 0};
    poll(fds, 3, static_cast<int>(deadline.left_ms(60'000)));
    for (size_t i = 0; i < 2; ++i)
      if (fds[i + 1].revents != 0) queues_[i].write_some();
    if (fds[0].revents != 0) take_signals();
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  Signals signals;
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, &signals.mask);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;  // a reader that goes away ends its output, not the job
  sigaction(SIGPIPE, &ignore, &signals.pipe);
  signal(SIGCHLD, SIG_DFL);  // whoever started us may have had it ignored
  signals.fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals.fd < 0) fail_system(Code::io, "no signalfd", errno);
  const int secret = make_secret();
  const std::string job = make_job();
  const Deadline deadline = options.timeout_s > 0
                                ? Deadline::after_ms(static_cast<int64_t>(options.timeout_s * 1000))
                                : Deadline::never();
  for (int restart = 0;; ++restart) {
    const std::optional<Failure> failure = Attempt(options, signals, secret, job, restart, deadline).run();
    if (!failure) return 0;
    if (!failure->may_restart || restart >= options.max_restarts) return failure->status;
    std::fprintf(stderr, "gangrun: restart %d of %d\n", restart + 1, options.max_restarts);
  }
}

}  // namespace gangway::tools
