// A gang as the network sees it: its members, and their calls.
//
// Thread rule: constants from any thread, everything else under the network's mutex.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/network/topology.h"
#include "gang/network/transfer.h"

namespace gangway::network {

struct Group {
  // `hosts[r]` is the host of rank r (topology.h).
  Group(uint64_t id, std::vector<int> members, std::vector<int> hosts, const EngineOptions& options)
      : id(id),
        members(std::move(members)),
        hosts(std::move(hosts)),
        topology(this->hosts),
        options(options),
        gone(this->members.size()) {}

  int size() const { return static_cast<int>(members.size()); }
  int rank_of(int member) const {  // the rank of a member of the root gang, or -1
    for (size_t r = 0; r < members.size(); ++r)
      if (members[r] == member) return static_cast<int>(r);
    return -1;
  }
  Error lost(const char* op, const std::string& words, int peer) const;

  const uint64_t id;
  const std::vector<int> members;  // members[r] is rank r's rank in the root gang
  const std::vector<int> hosts;
  const Topology topology;
  const EngineOptions options;

  std::optional<Error> error;
  std::map<Key, TransferPtr> active;
  // Collectives that wait, in the order of the calls, for earlier ones that share their memory. To plan a
  // call may copy some of it already, so they are planned when they start.
  struct Held {
    Key key;
    Touched memory;
    std::function<TransferPtr()> plan;
  };
  std::deque<Held> held;
  bool is_starting_held = false;
  struct Early {
    Note note;
    std::string payload;
  };
  std::map<std::pair<Key, int>, Early> early;  // notes of calls that this rank has not begun, by author
  std::vector<bool> gone;                      // members that have left or have released this gang
  // Notes with a payload that the peer has not answered, by peer and channel.
  std::map<std::pair<int, Channel>, int> unanswered;
  std::deque<TransferPtr> to_compute;
};

// The key of the call that a note is about, as this rank sees it. `from`: the author.
Key key_of(const Note& note, int from);
// Returns text such as "all_reduce #3 of rank 1 (1 f64, sum)"; `rank` is "rank 1".
std::string text_of(const Note& note, const std::string& rank);
// Returns the error of a call that meets another call of `peer`, or nothing if the two agree.
std::optional<Error> disagreement(const Group& group, const Transfer& own, int peer, const Note& other);

}  // namespace gangway::network
