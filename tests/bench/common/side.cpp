#include "common/side.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/rank.h"

namespace gangway::bench {
namespace {

struct Folder {
  char path[64] = "/tmp/gangway-bench-XXXXXX";
  Folder() {
    if (mkdtemp(path) == nullptr) path[0] = 0;
  }
  ~Folder() {
    unlink(socket().c_str());
    rmdir(path);
  }
  std::string socket() const { return std::string(path) + "/socket"; }
};

int listen_at(const std::string& path, int ranks) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, ranks) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// A process group of its own, so that a launcher's ranks can be ended with it. Output goes to a log, shown on
// failure.
pid_t spawn(const Launch& launch, const std::string& socket, int copy, int log) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  for (const auto& name : launch.unset) unsetenv(name.c_str());
  for (const auto& [name, value] : launch.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = launch.command;
  for (std::string& word : words) {
    if (word == "{socket}") word = socket;
    if (word == "{copy}") word = std::to_string(copy);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
  _exit(127);
}

std::string tail_of(int log) {
  char text[601] = {};
  const off_t size = lseek(log, 0, SEEK_END);
  const ssize_t n = pread(log, text, sizeof text - 1, std::max<off_t>(0, size - 600));
  std::string out(text, static_cast<size_t>(std::max<ssize_t>(0, n)));
  std::replace(out.begin(), out.end(), '\n', '|');
  return out;
}

bool all_ended(const std::vector<pid_t>& children) {
  for (const pid_t pid : children) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<Side> Side::start(const std::string& name, int ranks, const Launch& launch, double timeout_s,
                                  std::string* why) {
  const Folder folder;
  const int listener = listen_at(folder.socket(), ranks);
  const int log = memfd_create("log", MFD_CLOEXEC);
  std::unique_ptr<Side> side(new Side);
  side->name_ = name;
  side->ranks_.resize(static_cast<size_t>(ranks));
  side->pids_.assign(static_cast<size_t>(ranks), 0);
  for (int i = 0; i < launch.copies; ++i) side->children_.push_back(spawn(launch, folder.socket(), i, log));
  const double until = bench_seconds() + timeout_s;
  int greeted = 0;
  *why = "";
  while (greeted < ranks && why->empty()) {
    pollfd waiting{listener, POLLIN, 0};
    if (poll(&waiting, 1, 100) == 1) {
      Connection connection{accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), {}};
      std::string line;
      int rank = -1, used = 0;
      long pid = 0;
      if (side->read_line(connection.fd, &connection.rest, &line, until) &&
          std::sscanf(line.c_str(), "hello %d %ld %n", &rank, &pid, &used) == 2 && rank >= 0 &&
          rank < ranks) {
        side->ranks_[static_cast<size_t>(rank)] = connection;
        side->pids_[static_cast<size_t>(rank)] = static_cast<pid_t>(pid);
        if (rank == 0) side->greeting_ = line.substr(static_cast<size_t>(used));
        ++greeted;
      } else {
        *why = "a rank said \"" + line + "\"";
      }
    } else if (all_ended(side->children_)) {
      *why = "ended at once: " + tail_of(log);
    } else if (bench_seconds() > until) {
      *why = "not ready after " + std::to_string(static_cast<int>(timeout_s)) + " s: " + tail_of(log);
    }
  }
  close(listener);
  close(log);
  if (!why->empty()) side.reset();
  return side;
}

Side::~Side() {
  for (const Connection& rank : ranks_) {
    if (rank.fd < 0) continue;
    if (alive()) send(rank.fd, "quit\n", 5, MSG_NOSIGNAL);
    close(rank.fd);
  }
  const double until = bench_seconds() + (alive() && greeting_.size() ? 5 : 0);
  while (bench_seconds() < until && !all_ended(children_)) usleep(10000);
  for (const pid_t pid : children_) {
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void Side::tell(const std::string& line) {
  const std::string text = line + "\n";
  for (const Connection& rank : ranks_)
    if (send(rank.fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()) && alive())
      why_ = "a rank is gone";
}

std::vector<std::string> Side::replies(double timeout_s) {
  std::vector<std::string> lines(ranks_.size());
  const double until = bench_seconds() + timeout_s;
  for (size_t i = 0; i < ranks_.size() && alive(); ++i) {
    if (!read_line(ranks_[i].fd, &ranks_[i].rest, &lines[i], until))
      why_ = "rank " + std::to_string(i) + (bench_seconds() > until ? " is too late" : " is gone");
    else if (lines[i].rfind("error", 0) == 0)
      why_ = lines[i];
  }
  if (!alive()) lines.clear();
  return lines;
}

bool Side::read_line(int fd, std::string* rest, std::string* line, double until) {
  while (true) {
    if (const size_t end = rest->find('\n'); end != std::string::npos) {
      *line = rest->substr(0, end);
      rest->erase(0, end + 1);
      return true;
    }
    const double left = until - bench_seconds();
    pollfd waiting{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left * 1000) + 1);
    if (ready < 0 && errno == EINTR) continue;  // the benchmark was asked to stop, after this reply
    if (ready != 1) return false;
    char text[4096];
    const ssize_t n = read(fd, text, sizeof text);
    if (n <= 0) return false;
    rest->append(text, static_cast<size_t>(n));
  }
}

double pss_bytes(const std::vector<pid_t>& pids) {
  double sum = 0;
  for (const pid_t pid : pids) {
    const std::string path = "/proc/" + std::to_string(pid) + "/smaps_rollup";
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return 0;
    char line[256];
    double kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::sscanf(line, "Pss: %lf kB", &kib) == 1) break;
    std::fclose(file);
    sum += kib * 1024;
  }
  return sum;
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string out;
  char text[512];
  while (std::fgets(text, sizeof text, pipe) != nullptr) out += text;
  if (pclose(pipe) != 0) return "";
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace gangway::bench
