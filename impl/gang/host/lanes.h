// The queues of one rank's calls, and the calls in them. On one channel calls run in order; sends and receives run in
// order per ordered pair of ranks.
//
// Thread rule: under the core's mutex.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "gang/host/op.h"

namespace gangway::host {

class Lanes {
 public:
  Lanes(int rank, int size);

  Lane& of(Channel channel, const Collective& c);  // a pair's is made at its first use
  Op* make();                                      // in no lane yet
  void recycle(Op* op);                            // in no lane any more
  void append(Op* op);                             // to op->lane; without memory: bad_alloc, nothing changed
  // Takes `op` out of its lane; `before` precedes it, null: it is the head. What follows it.
  Op* remove(Op* before, Op* op);

  // Lanes with calls. An empty one leaves the list by drop_empty().
  const std::vector<Lane*>& active() const { return active_; }
  void drop_empty();
  int outstanding() const { return outstanding_; }  // calls that were made and not recycled

  // Calls in flight on one channel may share memory. A call's input is open to peers from the moment it is published,
  // and its output may be written by them; so it is published when every earlier call that it shares memory with has
  // ended. The first such call; null: none.
  const Op* holder(const Op& op) const;

  // Calls `visit(lane)` for every lane that has been used.
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const Lane& lane : channels_) visit(lane);
    for (const auto& lane : pairs_)
      if (lane != nullptr) visit(*lane);
  }

 private:
  const int rank_, size_;
  std::array<Lane, kChannels> channels_;
  std::vector<std::unique_ptr<Lane>> pairs_;  // [channel][peer][receive, send]
  std::vector<Lane*> active_;
  std::deque<Op> ops_;
  Op* free_ops_ = nullptr;
  int outstanding_ = 0;
};

}  // namespace gangway::host
