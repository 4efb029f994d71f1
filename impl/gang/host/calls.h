// The calls of one rank that are in flight. Calls begins them, drives them in the order of their lanes, and
// tells their works when they end. Nothing here waits. A function throws the error of a call, and whoever
// catches it breaks the engine.
//
// Thread rule: under the core's mutex, except moves().
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

constexpr int kEager = 8;  // how often a peer that is about to arrive is polled without a pause
// The most steps that are done while the mutex is held once. It is limited so that other threads can take the
// mutex and the interrupt hook is called.
constexpr int kMoves = 8;
constexpr int kTurns = 50;  // how often the calls are polled while the mutex is held once
// The same if there are more ranks than cores, where the awaited rank needs this core.
constexpr int kCrowdedTurns = 4;

class Calls {
 public:
  explicit Calls(Team& team);

  // Begins a call with the next sequence number. It is in no lane yet.
  Op* begin(Channel channel, const Collective& c);
  // Drives a call whose input is copied with its flag, if no other call is outstanding. Returns true if the
  // call has ended and is recycled, and false if it has to be enqueued.
  bool meet(Op* op, Works& owner);
  void enqueue(Op* op, HostWork& work);
  void forget(Op* op) { lanes_.recycle(op); }  // for a call in no lane, if the engine broke

  // Drives every call once.
  void turn();
  // Drives every call up to `turns` times. Returns whether the work is in one of `states`.
  bool look(const HostWork& work, uint32_t states, int turns);
  // Ends all calls with `error`.
  void fail(const Error& error) noexcept;

  const Lanes& lanes() const { return lanes_; }
  Lanes& lanes() { return lanes_; }
  const FlightRecorder& flight_recorder() const { return flight_recorder_; }
  uint64_t sequence(Channel channel, const Collective& c) { return lanes_.of(channel, c).sequence; }
  // Returns how many steps were done so far.
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }
  Traffic traffic() const { return traffic_; }
  // The last calls. Calls that have not ended are listed as failed with `error`, if there is one.
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
  int moves_left_ = 0;  // steps that may still be done before the mutex is released
};

}  // namespace gangway::host
