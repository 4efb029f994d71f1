// Ends what the ranks have started when the launcher is killed and can do nothing itself: a process of its own that knows
// the ranks' process groups and sees the launcher's end. Thread rule: one thread, which must be the only one of its
// process when this is made.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace gangway::tools {

class Watchdog {
 public:
  explicit Watchdog(size_t ranks);
  ~Watchdog();  // the ranks are the caller's to end
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void watch(int rank, pid_t group) { groups_[rank].store(group); }
  void forget(int rank) { groups_[rank].store(0); }  // before the number may be another's

 private:
  [[noreturn]] void run(int end);

  const size_t ranks_;
  std::atomic<pid_t>* groups_ = nullptr;  // memory that both processes share
  int launcher_end_ = -1;                 // of a pipe; closed by the launcher's end
  pid_t pid_ = -1;
};

}  // namespace gangway::tools
