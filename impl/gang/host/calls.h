// The calls of one rank that are in flight: it begins them, drives them in the order of their queues and tells their
// works when they end. Nothing here waits; an error of a call is thrown, and its catcher breaks the engine.
//
// Thread rule: under the core's mutex, but moves().
#pragma once

#include <atomic>

#include "gang/host/call/algorithm.h"
#include "gang/host/call/flight_recorder.h"
#include "gang/host/call/lanes.h"
#include "gang/host/call/work.h"

namespace gangway {
class Works;
}

namespace gangway::host {

constexpr int kEager = 8;  // looks without a pause: for a peer that is about to come
constexpr int kMoves =
    8;  // steps under one hold of the mutex, so that other threads and the interrupt hook have a turn
constexpr int kTurns = 50;        // looks under one hold of the mutex
constexpr int kCrowdedTurns = 4;  // with more ranks than cores the one waited for needs this very core

class Calls {
 public:
  explicit Calls(Team& team);

  // A call of the next sequence, which stands in no queue yet.
  Op* begin(Channel channel, const Collective& c);
  // Drives a call whose input rides with its flag, while nothing else is outstanding. True: it is over and gone. False:
  // it has to be queued.
  bool meet(Op* op, Works& owner);
  void enqueue(Op* op, HostWork& work);
  void forget(Op* op) { lanes_.recycle(op); }  // of a broken engine

  // Drives every call once.
  void turn();
  // The same, up to `turns` times. True: the work is in one of the states `states`.
  bool look(const HostWork& work, uint32_t states, int turns);
  // Ends all calls with `error`.
  void fail(const Error& error) noexcept;

  const Lanes& lanes() const { return lanes_; }
  Lanes& lanes() { return lanes_; }
  const FlightRecorder& flight_recorder() const { return flight_recorder_; }
  uint64_t sequence(Channel channel, const Collective& c) { return lanes_.of(channel, c).sequence; }
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }  // steps taken so far
  Traffic traffic() const { return traffic_; }
  // The ring of last calls; those that have not ended failed with `error`, if there is one.
  std::vector<FlightEntry> flight_record(const std::optional<Error>& error) const;

 private:
  Call call(Op& op) { return {team_, op, traffic_}; }
  bool publish(Op& op);
  void sweep();
  void advance(Lane& lane);
  bool end_what_has(Op& op);
  void note_start(Op& op);

  Team& team_;
  Lanes lanes_;
  FlightRecorder flight_recorder_;
  Traffic traffic_;
  std::atomic<uint64_t> moves_{0};
  int moves_left_ = 0;  // under this hold of the mutex
};

}  // namespace gangway::host
