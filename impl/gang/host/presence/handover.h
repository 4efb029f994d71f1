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

// One rank's part in the handover. The socket's name is the random id of rank 0's attempt. Each entry in the
// store begins with it, so entries of an earlier gang or run are ignored, and a process id that is used again
// cannot be mistaken for a rank: nobody listens at the old name. A rank can publish its process only after it
// knows the name. If it dies before, the others notice only at the deadline.
//
// An entry that the store already held, and at whose name nobody listens, could be of this run or of an
// earlier run that was killed. It is of this run if it was put after this process began, or after this rank
// came to the store. Otherwise the rank waits for a new rank 0 until its deadline. A process remembers the
// names of attempts that it gave up itself, and ignores them when it tries again.
class Handover {
 public:
  Handover(Store& store, int rank, Deadline deadline);

  // Rank 0 creates the arena and sends it to size - 1 peers; the others receive and map it. All throw
  // NOT_SUPPORTED when one of them cannot reach rank 0.
  std::shared_ptr<Arena> share(int size, const ArenaOptions& options);
  void check();  // throws when another rank has given up or died
  void look();   // calls check(), but only once in a while: each check asks the store
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
  bool is_of_this_run(uint64_t boot, int64_t put_ns) const;
  int dead_rank();  // a rank of this run; -1: none
  void find_process(int r);
  std::string failure_entry(const Error& why) const;
  bool is_news(const std::string& failure) const;
  void hand_over(const Arena& arena, int peers);
  std::shared_ptr<Arena> fetch();
  std::string next_place(const std::string& dead);
  [[noreturn]] void throw_failure(const std::string& entry, const char* advice = "");

  Store& store_;
  const int rank_;
  const Deadline deadline_;
  const BootTime began_;  // this process had begun by then
  int size_ = 1;
  Deadline next_look_;
  int next_unknown_ = 0;            // where rank 0 goes on to look for the processes of ranks
  bool met_ = false;                // for other ranks than 0: rank 0 has been reached
  bool came_first_ = false;         // the same: rank 0 put its address after this rank had come
  std::string name_, token_;        // of rank 0's socket; the name is empty while it is unknown
  bool placed_ = false;             // for rank 0: name and token are in the store
  std::vector<Process> processes_;  // for rank 0: of all ranks; for the others: of rank 0
  // The failure that was in the store when this rank came. It may be of an earlier gang.
  std::optional<std::string> old_failure_;
  bool failure_is_stored_ = false;  // a rank has given up, and the store holds its reason
};

}  // namespace gangway::host
