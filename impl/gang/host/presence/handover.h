// Hands the arena to the processes of a host. Rank 0 listens on an abstract Unix socket with a random name,
// and sends the arena's descriptor to each process that sends the right token. The ranks read name and token
// from the store. A rank that cannot reach the socket counts as on another host, also if only its network
// namespace differs.
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

// One rank's part in the handover. Each entry in the store names the socket that it belongs to, so entries of
// an earlier gang or run are ignored. A rank can publish its process only after it knows that name. If it
// dies before, the others notice only at the deadline, because an entry without the name could be of an
// earlier run, whose ranks are dead as well. The same holds for a dead rank 0 that started before this
// process: it could be of this run, or of an earlier run that was killed, so the others wait for a new rank 0
// until their deadline. A process remembers the sockets of start-ups that it gave up itself, and ignores them
// when it tries again.
class Handover {
 public:
  Handover(Store& store, int rank, Deadline deadline);

  // Rank 0 creates the arena and sends it to size - 1 peers; the others receive and map it. All throw
  // NOT_SUPPORTED when one of them cannot reach rank 0.
  std::shared_ptr<Arena> share(int size, const ArenaOptions& options);
  void check();  // throws when another rank has given up or died
  // Neither throws, but the calling thread may end inside the caller's store.
  void give_up(const Error& why);  // tells the others, who see it at their next check()
  void end();                      // after all ranks have met: removes this rank's entries

 private:
  // A rank that has published its process.
  struct Process {
    int pid = 0;
    Descriptor fd;  // a pidfd
    bool of_this_run = false, ended = false;
  };

  void announce();
  int dead_rank();  // a rank of this run; -1: none
  void hand_over(const Arena& arena, int peers);
  std::shared_ptr<Arena> fetch();
  std::string next_place(const std::string& dead);
  [[noreturn]] void throw_failure(const std::string& entry, const char* advice = "");

  Store& store_;
  const int rank_;
  const Deadline deadline_;
  const BootTime began_;            // when this process started
  bool met_ = false;                // for other ranks than 0: rank 0 has been reached
  std::string name_, token_;        // of rank 0's socket; the name is empty while it is unknown
  bool placed_ = false;             // for rank 0: name and token are in the store
  std::vector<Process> processes_;  // for rank 0: of all ranks; for the others: of rank 0
  // The failure that was in the store before this rank started. It is of an earlier gang, or of this one if
  // rank 0 was faster, so it is reported only after the deadline or the death of a process.
  std::optional<std::string> old_failure_;
  bool failure_is_stored_ = false;  // a rank has given up, and the store holds its reason
};

}  // namespace gangway::host
