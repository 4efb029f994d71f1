#include "tools/watchdog.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace gangway::tools {

namespace {

// Closes all descriptors but 0, one after another. Older kernels have no close_range, and filters of
// containers refuse it.
void close_each() {
  std::vector<int> open;
  if (DIR* const all = opendir("/proc/self/fd"); all != nullptr) {
    while (const dirent* const one = readdir(all)) open.push_back(std::atoi(one->d_name));
    closedir(all);
  } else {
    constexpr long kMost = 1 << 16;  // without /proc; the limit may be a thousand millions
    for (int fd = 1; fd < std::min(kMost, sysconf(_SC_OPEN_MAX)); ++fd) open.push_back(fd);
  }
  for (const int fd : open)
    if (fd > 0) close(fd);
}

}  // namespace

Watchdog::Watchdog(size_t ranks) : ranks_(ranks) {
  void* const shared =
      mmap(nullptr, ranks * sizeof *groups_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail_system(Code::out_of_memory, "no memory for the watchdog", errno);
  groups_ = static_cast<std::atomic<pid_t>*>(shared);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system(Code::io, "no pipe for the watchdog", errno);
  pid_ = fork();
  if (pid_ < 0) fail_system(Code::io, "cannot start the watchdog", errno);
  if (pid_ == 0) {
    close(ends[1]);  // the watchdog waits for the launcher to close its end, so it must not hold it itself
    run(ends[0]);
  }
  close(ends[0]);
  launcher_end_ = ends[1];
}

Watchdog::~Watchdog() {
  for (size_t i = 0; i < ranks_; ++i) groups_[i].store(0);
  close(launcher_end_);
  waitpid(pid_, nullptr, 0);
  munmap(groups_, ranks_ * sizeof *groups_);
}

// The watchdog has a session and a name of its own, so that a signal to the launcher's group, or to all
// processes of its name, does not end it too.
void Watchdog::run(int end) {
  setsid();
  prctl(PR_SET_NAME, "gw-watch");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  dup2(end, 0);
  // Closes the launcher's output too, since its reader waits for the end of it.
  if (close_range(1, UINT_MAX, 0) != 0) close_each();
  char byte;
  while (read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  for (size_t i = 0; i < ranks_; ++i)
    if (const pid_t group = groups_[i].load(); group > 0 && kill(-group, SIGKILL) != 0) kill(group, SIGKILL);
  _exit(0);
}

}  // namespace gangway::tools
