// The queues (lanes) of one rank's calls, and the calls in them. The calls of one channel run in order. Sends
// and receives run in order for each ordered pair of ranks.
//
// Thread rule: under the core's mutex.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "gang/host/call/op.h"

namespace gangway::host {

class Lanes {
 public:
  explicit Lanes(const Team& team);

  Lane& of(Channel channel, const Collective& c) {
    const bool pair = is_pair(c);
    return pair ? pair_of(channel, c) : channels_[static_cast<size_t>(channel)];
  }
  // Returns a new call that is in no lane yet.
  Op* make() {
    Op* op = free_ops_;
    if (op == nullptr)
      op = &ops_.emplace_back();
    else
      free_ops_ = op->next;
    ++outstanding_;
    return op;
  }
  // Takes back a call that is in no lane any more.
  void recycle(Op* op) {
    --outstanding_;
    static_cast<OpProgress&>(*op) = OpProgress{};
    static_cast<OpRounds&>(*op) = OpRounds{};
    op->counts.clear();  // keeps its capacity for the next call
    op->next = free_ops_;
    free_ops_ = op;
  }
  // Appends the call to op->lane. Throws bad_alloc without having changed anything.
  void append(Op* op) {
    Lane& lane = *op->lane;
    if (!lane.active) {  // first, because it may allocate
      active_.push_back(&lane);
      lane.active = true;
    }
    op->next = nullptr;
    (lane.head == nullptr ? lane.head : lane.tail->next) = op;
    lane.tail = op;
  }
  // Takes `op` out of its lane and returns the call that follows it. `before` precedes it; null: `op` is the
  // head.
  Op* remove(Op* before, Op* op) {
    Lane& lane = *op->lane;
    Op* const next = op->next;
    (before == nullptr ? lane.head : before->next) = next;
    if (lane.tail == op) lane.tail = before;
    return next;
  }

  // The lanes that have calls. drop_empty() removes the empty ones.
  const std::vector<Lane*>& active() const { return active_; }
  void drop_empty();
  int outstanding() const { return outstanding_; }  // calls that were made and not recycled

  // Returns the first earlier call that must end before `op` may be published, or null. Calls in flight on
  // one channel may share memory. Peers may read a call's input, and write its output, from the moment it is
  // published, so it is published only when every earlier call that shares memory with it has ended.
  const Op* holder(const Op& op) const;

  // Calls `visit(lane)` for every lane that has been used.
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const Lane& lane : channels_) visit(lane);
    for (const auto& lane : pairs_)
      if (lane != nullptr) visit(*lane);
  }

 private:
  Lane& pair_of(Channel channel, const Collective& c);  // made at its first use

  const Team& team_;
  std::array<Lane, kChannels> channels_;
  std::vector<std::unique_ptr<Lane>> pairs_;  // [channel][peer][receive, send]
  std::vector<Lane*> active_;
  std::deque<Op> ops_;
  Op* free_ops_ = nullptr;
  int outstanding_ = 0;
};

}  // namespace gangway::host
