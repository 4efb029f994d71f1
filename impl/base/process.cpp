#include "base/process.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>

namespace gangway {

namespace {

// Reads the calling process as "self": /proc may belong to another PID namespace, in which its number
// differs.
std::ifstream open_about(pid_t pid, const char* what) {
  return std::ifstream("/proc/" + (pid == getpid() ? "self" : std::to_string(pid)) + what);
}

int64_t boot_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// The time at which the library was loaded into this process, or at which a fork made the process. The kernel
// counts the begin of a process in ticks of 10 ms, in which one run can be killed and the next one begin.
struct FirstSeen {
  std::atomic<pid_t> process{getpid()};
  std::atomic<int64_t> ns{boot_ns()};
};
FirstSeen first_seen;

void see_fork() {
  first_seen.process.store(getpid(), std::memory_order_relaxed);
  first_seen.ns.store(boot_ns(), std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, see_fork);

}  // namespace

std::optional<int64_t> process_stat(pid_t pid, int number) {
  std::ifstream file = open_about(pid, "/stat");
  std::string stat;
  std::getline(file, stat, '\0');
  // Field 2 is the process's name, which may contain spaces and parentheses, so counting starts behind its
  // last ')'.
  size_t at = stat.rfind(')');
  for (int field = 2; field < number && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(stat.c_str() + at, nullptr, 10);
}

int64_t process_start(pid_t pid) {
  constexpr int kStart = 22;
  return process_stat(pid, kStart).value_or(0);
}

BootTime boot_time() {
  BootTime now;
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  struct stat space {};
  if (stat("/proc/self/ns/time", &space) == 0) id += std::to_string(space.st_ino);
  now.boot = XXH3_64bits(id.data(), id.size());
  now.ns = boot_ns();
  return now;
}

BootTime own_start() {
  BootTime start = boot_time();
  const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  // The kernel rounds down.
  if (const int64_t ticks = process_start(getpid()); ticks > 0)
    start.ns = std::min(start.ns, (ticks + 1) * tick_ns);
  if (first_seen.process.load(std::memory_order_relaxed) == getpid())
    start.ns = std::min(start.ns, first_seen.ns.load(std::memory_order_relaxed));
  return start;
}

bool dumps_core(pid_t pid) {
  std::ifstream file = open_about(pid, "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("CoreDumping:")) return line.ends_with('1');
  return false;
}

}  // namespace gangway
