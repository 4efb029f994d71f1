// The ranks as processes: their environment, how they start, and how the launcher sees their end.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/process.h"
#include "tools/attempt.h"

namespace gangway::tools {
namespace {

// How long the launcher waits for a likelier cause after a rank has exited with an error. A killed rank
// becomes a zombie only after its memory is freed, and a rank that noticed its death may exit before that.
// kExitingMs holds while a rank is still exiting.
constexpr int64_t kCauseMs = 200, kExitingMs = 5000;

template <typename Bytes>
Bytes random_of() {
  Bytes out;
  if (getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size()))
    fail_system(Code::io, "getrandom failed", errno);
  return out;
}

bool another_start_may_help(int status) {
  const auto without = {kStartMeAgain, kWrongUsage, kDamagedInput, kDiverged};
  return std::find(without.begin(), without.end(), status) == without.end();
}

int keep_secret(const std::array<uint8_t, 32>& secret) {
  const int fd = memfd_create("gangway-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail_system(Code::io, "memfd_create failed", errno);
  if (write(fd, secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail_system(Code::io, "cannot write the secret", errno);
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return fd;
}

}  // namespace

int make_secret() { return keep_secret(random_of<std::array<uint8_t, 32>>()); }

int secret_from_input() {
  std::array<uint8_t, 32> secret;
  for (size_t have = 0; have < secret.size();) {
    const ssize_t n = read(0, secret.data() + have, secret.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(Code::io, "the standard input ended after ", have, " of the secret's 32 bytes");
    have += static_cast<size_t>(n);
  }
  return keep_secret(secret);
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

void signal_rank(pid_t pid, int signal) {
  if (kill(-pid, signal) != 0) kill(pid, signal);
}

bool is_exiting(pid_t pid) {
  constexpr int kFlags = 9, kExiting = 4;  // PF_EXITING
  return (process_stat(pid, kFlags).value_or(0) & kExiting) != 0;
}

Attempt::~Attempt() {
  for (const RankProcess& rank : ranks_) {
    if (rank.ended) waitpid(rank.pid, nullptr, 0);
    if (rank.input >= 0) close(rank.input);
  }
}

void Attempt::start_all() {
  try {
    size_t next = 0;
    for (const Program& program : options_.programs)
      for (int i = 0; i < program.ranks && !failure_; ++i, ++next) {
        ranks_[next].rank = static_cast<int>(next);
        ranks_[next].program = &program;
        start(ranks_[next]);
      }
  } catch (...) {  // also ends the processes that the ranks have started so far
    signal_all(SIGKILL);
    for (RankProcess& rank : ranks_) {
      if (!rank.running) continue;
      watchdog_.forget(rank.rank);
      waitpid(rank.pid, nullptr, 0);
    }
    throw;
  }
}

// Makes the standard input of a remote shell, which begins with the secret. Returns the end that it reads.
int Attempt::open_input(RankProcess& rank) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system(Code::io, "no pipe", errno);
  rank.input = ends[1];
  std::array<uint8_t, 32> secret;
  const bool passed =
      pread(secret_, secret.data(), secret.size(), 0) == static_cast<ssize_t>(secret.size()) &&
      write(ends[1], secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  if (!passed) fail_system(Code::io, "cannot pass on the secret", errno);
  return ends[0];
}

void Attempt::start(RankProcess& rank) {
  const std::array<int, 2> ends = open_streams(rank);
  int report[2];  // a successful exec closes the writing end
  if (pipe2(report, O_CLOEXEC) != 0) fail_system(Code::io, "no pipe", errno);
  const int input = rank.program->host.empty() ? -1 : open_input(rank);
  const pid_t launcher = getpid();
  rank.started = std::chrono::steady_clock::now();
  rank.pid = fork();
  if (rank.pid < 0) fail_system(Code::io, text("cannot start rank ", rank.rank), errno);
  if (rank.pid == 0) {
    // The kernel kills the rank when the launcher dies. The second line covers a launcher that died before
    // the first.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    if (input >= 0) dup2(input, 0);
    become(rank, ends, report[1]);
  }
  if (input >= 0) close(input);
  // The child calls this too. The launcher may forward a signal before the child's call.
  setpgid(rank.pid, rank.pid);
  watchdog_.watch(rank.rank, rank.pid);
  rank.running = true;
  close(report[1]);
  if (options_.prefix)
    for (const int end : ends) close(end);
  int reason = 0;
  const bool refused = read(report[0], &reason, sizeof reason) == sizeof reason;
  close(report[0]);
  if (!refused) return;
  watchdog_.forget(rank.rank);
  waitpid(rank.pid, nullptr, 0);
  rank.running = false;
  fail_job({reason == ENOENT ? 127 : 126,
            text("cannot run ", rank.program->command[0], ": ", strerror(reason)), false});
}

// Runs in the child. The rank gets a process group of its own, so that a rank that is a shell script is ended
// with all processes that it started.
void Attempt::become(const RankProcess& rank, const std::array<int, 2>& ends, int report) {
  setpgid(0, 0);
  const bool has_own_input = !rank.program->host.empty();
  if (!has_own_input && (rank.rank != 0 || isatty(0) != 0 ||
                         options_.node.world != 0)) {  // a background group may not read the terminal
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, 0);
  }
  for (int i = 0; i < 2; ++i)
    if (ends[static_cast<size_t>(i)] != i + 1) dup2(ends[static_cast<size_t>(i)], i + 1);
  fcntl(secret_, F_SETFD, 0);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  const Node& node = options_.node;
  set("RANK", std::to_string(node.first_rank + rank.rank));
  set("WORLD_SIZE", std::to_string(node.world != 0 ? node.world : options_.ranks()));
  set("LOCAL_RANK", std::to_string(rank.rank));
  set("LOCAL_WORLD_SIZE", std::to_string(options_.ranks()));
  set("MASTER_ADDR", node.master);
  set("MASTER_PORT", std::to_string(port_));
  set("GANGWAY_SECRET_FD", std::to_string(secret_));
  set("GANGWAY_JOB", job_);
  set("GANGWAY_RESTART_COUNT", std::to_string(node.world != 0 ? node.restart : restart_));
  std::vector<char*> arguments;
  for (const std::string& word : rank.program->command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &signals_.mask, nullptr);
  sigaction(SIGPIPE, &signals_.pipe, nullptr);
  execvp(arguments[0], arguments.data());
  const int reason = errno;
  (void)!write(report, &reason, sizeof reason);
  _exit(127);
}

void Attempt::reap() {
  for (RankProcess& rank : ranks_) {
    if (!rank.running) continue;
    siginfo_t facts{};
    // WNOWAIT keeps the zombie, and with it the number of the process group, until end_rank has dealt with
    // the group.
    if (waitid(P_PID, static_cast<id_t>(rank.pid), &facts, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        facts.si_pid != 0)
      end_rank(rank, facts);
  }
}

void Attempt::end_rank(RankProcess& rank, const siginfo_t& facts) {
  const bool killed = facts.si_code != CLD_EXITED;
  const bool failed = killed || facts.si_status != 0;
  if (failed || failure_) kill(-rank.pid, SIGKILL);
  watchdog_.forget(rank.rank);
  rank.running = false;
  rank.ended = true;
  // The rank's last output comes before the launcher's own text.
  rank.out.read_available();
  rank.err.read_available();
  if (!failed || failure_) return;
  // A rank that was killed by a signal is a likelier cause than one that exited, which may have exited
  // because of it.
  if (cause_ && (!killed || cause_->status > 128)) return;
  if (!cause_) {
    decide_at_ = Deadline::after_ms(kCauseMs);
    decide_last_ = Deadline::after_ms(kExitingMs);
  }
  const char* const name = killed ? sigabbrev_np(facts.si_status) : nullptr;
  const std::string who = called(rank);
  cause_ = Failure{killed ? 128 + facts.si_status : facts.si_status,
                   killed ? text(who, " (process ", rank.pid, ") was killed by signal ", facts.si_status,
                                 " (SIG", name != nullptr ? name : "?", ", ", strsignal(facts.si_status), ")")
                          : text(who, " (process ", rank.pid, ") exited with code ", facts.si_status,
                                 facts.si_status == kStartMeAgain ? " (start it again to continue)" : ""),
                   killed || another_start_may_help(facts.si_status)};
}

std::string Attempt::called(const RankProcess& rank) const {
  if (!rank.program->host.empty()) return "host " + rank.program->host;
  return text("rank ", options_.node.first_rank + rank.rank);
}

// A remote shell that is killed ends no rank behind it, so the other host is told first, and the shell has
// a moment to pass that on.
void Attempt::signal_all(int signal) {
  if (signal == SIGKILL) {
    const auto byte = static_cast<char>(SIGKILL);
    bool is_told = false;
    for (const RankProcess& rank : ranks_)
      if (rank.running && rank.input >= 0) is_told = write(rank.input, &byte, 1) == 1 || is_told;
    if (is_told) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  for (const RankProcess& rank : ranks_)
    if (rank.running) send(rank, signal);
}

}  // namespace gangway::tools
