// One attempt to run a job: its ranks as processes (processes.cpp), their output (streams.cpp), and the
// course of the attempt (launch.cpp), and requests to end it (end_requests.cpp).
//
// Thread rule: one thread, which must be the only one of its process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "tools/launch.h"
#include "tools/line_prefix.h"
#include "tools/output_queue.h"
#include "tools/watchdog.h"

namespace gangway::tools {

// The launcher's end of one output stream of a rank.
struct Stream {
  int fd = -1;
  std::optional<LinePrefix> lines;

  // Reads the bytes that are available, at most about the capacity of a pipe. Returns false at the end of the
  // stream.
  bool read_available();
  void end();
};

struct RankProcess {
  int rank = 0;
  const Program* program = nullptr;
  pid_t pid = 0;
  bool running = false;
  // The process has ended but is not reaped yet, so that the other ranks can read in /proc how it ended.
  bool ended = false;
  Stream out, err;
  // Of a remote shell: its standard input, which has the secret and then a byte for each signal that the node
  // is to forward. The shell itself would die of a signal while the ranks of its host still save.
  int input = -1;
  std::chrono::steady_clock::time_point started = {};
  std::vector<int> postponed = {};  // signals that come when it handles them (Attempt::ask)
};

struct Failure {
  int status = 0;
  std::string message;
  bool may_restart = true;
  bool grace = true;  // whether the other ranks have LaunchOptions::grace_s to end by themselves
};

// The status by which a program says that it has saved its state, and that the same command continues it
// (EX_TEMPFAIL of sysexits.h).
constexpr int kStartMeAgain = 75;
// The status of a program whose arguments or settings are wrong (EX_USAGE): another start would not help.
constexpr int kWrongUsage = 64;
// The status of a program whose input is damaged (EX_DATAERR), and that of gw-train for a run that diverges.
// Another start would find the same.
constexpr int kDamagedInput = 65, kDiverged = 76;
constexpr int64_t kKillMs = 5000;  // the time between SIGTERM and SIGKILL
// How long a rank may take to install its handlers, and the time between two looks at them.
constexpr int64_t kStartMs = 2000, kLookMs = 10;
constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// The descriptor from which signals are read, and the settings that were changed for it, which the ranks get
// back.
struct Signals {
  int fd = -1;
  sigset_t mask;
  struct sigaction pipe;
};

// Functions for values that all attempts of a job share, and for processes.
// Returns the descriptor of a sealed memory file, which closes on exec. Only the ranks inherit it.
int make_secret();
int secret_from_input();  // the same with 32 bytes of the standard input
std::string make_job();
// Returns a free port for programs that want one. gangway itself uses no port on one host.
int free_port();
// Sends a signal to the process group of a rank. Where a container forbids setpgid there is none, and the
// rank alone gets the signal.
void signal_rank(pid_t pid, int signal);
// Returns whether the kernel is ending the process.
bool is_exiting(pid_t pid);

// One attempt to run the job.
class Attempt {
 public:
  Attempt(const LaunchOptions& options, const Signals& signals, Watchdog& watchdog, int secret,
          const std::string& job, int restart, Deadline deadline)
      : options_(options),
        signals_(signals),
        watchdog_(watchdog),
        secret_(secret),
        job_(job),
        restart_(restart),
        deadline_(deadline),
        ranks_(static_cast<size_t>(options.ranks())) {}
  ~Attempt();  // reaps the ranks that have ended
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  std::optional<Failure> run();

 private:
  void start_all();
  void start(RankProcess& rank);
  int open_input(RankProcess& rank) const;
  std::array<int, 2> open_streams(RankProcess& rank);
  [[noreturn]] void become(const RankProcess& rank, const std::array<int, 2>& ends, int report);
  void step();
  void take_signals();
  void forward(int signal);
  // Sends a signal. A rank that has just started may have no handler yet, so the signal would end it before it
  // saves anything, with a status that asks for no new start. Such a rank gets the signal from ask_postponed().
  void ask(RankProcess& rank, int signal);
  void ask_postponed();
  void send(const RankProcess& rank, int signal) const;
  void limit_end();
  void look_at_input();
  // Names a rank in a text: "rank 3", or "host node1".
  std::string called(const RankProcess& rank) const;
  void enforce_end_request();
  void reap();
  void decide();
  void say(const std::string& message) { queues_[1].add(text("gangrun: ", message, "\n")); }
  void flush();
  void fail_job(Failure failure);
  void end_all();
  void end_rank(RankProcess& rank, const siginfo_t& facts);
  void signal_all(int signal);
  void drain();
  int running() const {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.running; }));
  }

  const LaunchOptions& options_;
  const Signals& signals_;
  Watchdog& watchdog_;
  const int secret_;
  const std::string job_;
  const int restart_;
  const Deadline deadline_;
  const int port_ = options_.node.world != 0 ? options_.node.port : free_port();
  std::vector<RankProcess> ranks_;
  std::array<OutputQueue, 2> queues_{OutputQueue(1), OutputQueue(2)};
  std::optional<Failure> cause_;  // the likeliest cause of the failure so far
  Deadline decide_at_ = Deadline::never(), decide_last_ = Deadline::never();
  std::optional<Failure> failure_;
  Deadline end_at_ = Deadline::never(), kill_at_ = Deadline::never();
  bool input_ended_ = false;
  bool warned_ = false;   // SIGUSR1 was forwarded
  int end_requests_ = 0;  // the number of SIGINT, SIGTERM and SIGHUP that were forwarded
  int end_signal_ = 0;    // the last of them
  // When ranks that ignore the first of them are killed, and when all others are.
  Deadline deaf_at_ = Deadline::never(), end_by_ = Deadline::never();
  bool drawing_ = false;  // an unfinished progress line is on the terminal
};

}  // namespace gangway::tools
