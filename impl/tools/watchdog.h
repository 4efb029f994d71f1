// Ends the processes that the ranks have started when the launcher is killed and cannot do so itself. The
// watchdog is a process that knows the ranks' process groups and notices the end of the launcher.
//
// Thread rule: one thread, which must be the only one of its process when a Watchdog is made.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace gangway::tools {

class Watchdog {
 public:
  explicit Watchdog(size_t ranks);
  ~Watchdog();  // the caller ends the ranks
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void watch(int rank, pid_t group) { groups_[rank].store(group); }
  // Call it before the number of the group can be reused.
  void forget(int rank) { groups_[rank].store(0); }

 private:
  [[noreturn]] void run(int end);

  const size_t ranks_;
  std::atomic<pid_t>* groups_ = nullptr;  // memory that both processes share
  int launcher_end_ = -1;                 // of a pipe; the end of the launcher closes it
  pid_t pid_ = -1;
};

}  // namespace gangway::tools
