// Opens the data connections of a rank when they are first needed: the lower rank of a pair opens it, the
// higher one asks for that on the control connection.
//
// Thread rule: under the network's mutex.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gang/network/dial.h"
#include "gang/network/door.h"
#include "gang/network/link.h"

namespace gangway::network {

class Connector {
 public:
  Connector(std::shared_ptr<const Contacts> contacts, Door door)
      : contacts_(std::move(contacts)), door_(std::move(door)) {}

  void want(int peer);  // a higher rank, once
  void forget(int peer) noexcept;
  // Returns why the last try to reach the peer has failed. Empty: none has failed, or the connection is open.
  std::string why_not(int peer) const;
  // To call when a peer has left. Returns whether the peer may have opened its connection before it left. If
  // so, this rank goes on with the try that has come so far, but makes no other.
  bool ends_with_this_try(int peer) noexcept;
  void add_polls(std::vector<pollfd>& fds) const;
  bool is_busy() const { return !wanted_.empty() || door_.is_busy(); }
  // Goes on with all of them, without waiting, and returns the connections that are open now.
  std::vector<Opened> serve();
  // Returns the peers that were not reached until the gang's deadline or until they left, and why.
  std::vector<std::pair<int, std::string>> take_failed() { return std::exchange(failed_, {}); }
  void close();

 private:
  struct Wanted {
    int peer = 0;
    Deadline deadline, next_try;
    std::unique_ptr<Dial> dial;
    std::string why;
    bool is_last_try = false;
  };
  // Returns true when it is over: the connection is open, or has failed for good.
  bool go_on(Wanted& one, std::vector<Opened>& opened);

  std::shared_ptr<const Contacts> contacts_;
  Door door_;
  std::list<Wanted> wanted_;
  std::vector<std::pair<int, std::string>> failed_;
};

// The connections of a rank when its gang has started.
struct Connections {
  std::list<Link> links;  // to every other rank, in rank order
  Connector connector;
};

}  // namespace gangway::network
