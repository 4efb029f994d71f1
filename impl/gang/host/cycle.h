// Threads that wait for each other in calls of different gangs, or in different calls of one. A thread that has waited
// for long says on the arena which call it is in and which ranks have not begun it. A thread that finds itself in a
// closed ring of such waits breaks all gangs of the ring with MISMATCH.
//
// A rank is stuck if all threads that act for it wait, each for a stuck rank: then none of them begins another call, and a
// call that a stuck rank has not begun cannot end. That holds if every notice stood still while all were compared, and
// no thread began to act for one of the ranks. A thread that has not called anything yet is not known: if it
// is to call while another thread waits, it should have made a call before.
#pragma once

#include "gang/host/core.h"
#include "gang/host/waitable.h"

namespace gangway::host {

// One thread's notice, taken back at the end of the wait.
class WaitNotice {
 public:
  explicit WaitNotice(Core& core) : core_(core) {}
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

  // Says, or says again, what the thread waits for. With kNotices threads waiting there is no room: the rank is then not
  // taken for stuck.
  void publish(Waitable& what);
  // True: a ring with this notice was found and broken.
  bool break_ring() const;

 private:
  Core& core_;
  int place_ = -1;  // among the rank's notices
};

}  // namespace gangway::host
