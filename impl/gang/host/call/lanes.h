// The queues of one rank's calls, and the calls in them. On one channel calls run in order; sends and receives run in
// order per ordered pair of ranks.
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
  // A call that is in no lane yet.
  Op* make() {
    Op* op = free_ops_;
    if (op == nullptr)
      op = &ops_.emplace_back();
    else
      free_ops_ = op->next;
    ++outstanding_;
    return op;
  }
  // It is in no lane any more.
  void recycle(Op* op) {
    --outstanding_;
    static_cast<OpProgress&>(*op) = OpProgress{};
    static_cast<OpRounds&>(*op) = OpRounds{};
    op->counts.clear();  // keeps its capacity
    op->next = free_ops_;
    free_ops_ = op;
  }
  // To op->lane; without memory: bad_alloc, nothing changed.
  void append(Op* op) {
    Lane& lane = *op->lane;
    if (!lane.active) {  // first, as it may want memory
      active_.push_back(&lane);
      lane.active = true;
    }
    op->next = nullptr;
    (lane.head == nullptr ? lane.head : lane.tail->next) = op;
    lane.tail = op;
  }
  // Takes `op` out of its lane; `before` precedes it, null: it is the head. What follows it.
  Op* remove(Op* before, Op* op) {
    Lane& lane = *op->lane;
    Op* const next = op->next;
    (before == nullptr ? lane.head : before->next) = next;
    if (lane.tail == op) lane.tail = before;
    return next;
  }

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
