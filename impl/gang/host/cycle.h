// Detects ranks that wait for each other in a cycle, in calls of different gangs or in different calls of one
// gang. A thread that has waited for long publishes in the arena which call it is in and which ranks have not
// begun that call. A thread that finds itself in a closed cycle of such waits breaks all gangs of the cycle
// with MISMATCH.
//
// A rank is stuck if all threads that act for it wait, each for a stuck rank: none of them can begin another
// call, and a call that a stuck rank has not begun cannot end. The conclusion is safe if no record changed
// while all were compared, and no further thread began to act for one of the ranks.
//
// Limit: a thread that has made no call yet is unknown here. A program whose second thread is to make a call
// while the first one waits should let the second make some call before.
//
// Thread rule: a WaitNotice belongs to the waiting thread.
#pragma once

#include "gang/host/core.h"
#include "gang/host/waitable.h"

namespace gangway::host {

// The record of one waiting thread. It is withdrawn at the end of the wait.
class WaitNotice {
 public:
  explicit WaitNotice(Core& core) : core_(core) {}
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

  // Publishes, or updates, what the thread waits for. There is room for kNotices threads of a rank. With more
  // of them waiting, the rank does not count as stuck.
  void publish(Waitable& what);
  // Returns whether a cycle with this wait was found and broken.
  bool break_ring() const;

 private:
  Core& core_;
  int place_ = -1;  // index of the rank's record
};

// Returns those of `ranks` whose processes have not run for a while, although nobody has seen their end.
std::vector<int> silent_ones(const Team& team, const std::vector<int>& ranks);
// Returns what holds up the ranks that a call waits for, as parts of a sentence: "; rank 3 waits in
// gang.tp.all_reduce #5 for rank 2; rank 2 has shown no sign of life ...". "": nothing is known.
std::string held_up_by(const Team& team, const std::vector<int>& ranks);

}  // namespace gangway::host
