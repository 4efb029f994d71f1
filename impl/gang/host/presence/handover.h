// How ranks get the arena: rank 0 listens on an abstract Unix socket with a random name and hands its
// descriptor to each process that shows the token. Name and token travel through the store. Ranks that cannot reach the
// socket are not on this host (a network namespace counts as one).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/process.h"
#include "gang/descriptor.h"
#include "gang/host/memory/arena.h"
#include "gang/rendezvous/store.h"

namespace gangway::host {

// One rank's part in it. Entries in the store name the socket they belong to, so what an earlier gang or run
// left there is ignored. A rank can say which process it is when it knows that name: a rank that dies
// before is missed at the deadline, for an entry without the name may be of an earlier run, whose ranks are
// dead too. Likewise a rank 0 that is dead and came before this process began: it may be of this run or of an
// earlier one that was killed, so the others wait for another until their deadline. A process knows the sockets of
// the starts that it gave up itself, and starts again past them.
class Handover {
 public:
  Handover(Store& store, int rank, Deadline deadline);

  // Rank 0: creates and hands over to size - 1 peers. Others: fetch and map. All throw NOT_SUPPORTED when one
  // of them cannot.
  std::shared_ptr<Arena> share(int size, const ArenaOptions& options);
  void check();  // throws when another rank has given up or died
  // Both throw nothing, but a thread may end in the caller's store.
  void give_up(const Error& why);  // the others hear of it at their next check()
  void end();                      // all have met: each takes its entries away

 private:
  // A rank that has said which process it is.
  struct Process {
    int pid = 0;
    Descriptor fd;  // a pidfd
    bool of_this_run = false, ended = false;
  };

  void announce();
  int dead_rank();  // of this run; -1: none
  void hand_over(const Arena& arena, int peers);
  std::shared_ptr<Arena> fetch();
  std::string next_place(const std::string& dead);
  [[noreturn]] void throw_failure(const std::string& entry, const char* advice = "");

  Store& store_;
  const int rank_;
  const Deadline deadline_;
  const BootTime began_;            // this process
  bool met_ = false;                // others: rank 0, at the socket name_
  std::string name_, token_;        // of rank 0's socket; name_ is empty while unknown
  bool placed_ = false;             // rank 0: they are in the store
  std::vector<Process> processes_;  // rank 0: of all; others: of rank 0
  // What the store said before this rank came: of an earlier gang, or of this one when rank 0 was quicker. It
  // counts when the deadline has passed.
  std::optional<std::string> old_failure_;
  bool failure_is_stored_ = false;  // a rank has given up, and the store says so
};

}  // namespace gangway::host
