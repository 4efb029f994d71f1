// The calls of one rank that are in flight. Calls begins them, drives them in the order of their lanes, and
// tells their works when they end. Nothing here waits. A function throws the error of a call, and whoever
// catches it breaks the engine.
//
// Thread rule: under the core's mutex, except moves().
#pragma once

#include <atomic>
#include <span>

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
constexpr size_t kMet = 4;  // the most calls of one launch that Calls::meet drives

class Calls {
 public:
  explicit Calls(Team& team);

  // Begins a call with the next sequence number. It is in no lane yet.
  Op* begin(Channel channel, const Collective& c);
  // Returns whether meet() can drive these calls: no other call is outstanding, and each of them is alone
  // in its lane, because nothing but a lane keeps the order of two calls.
  bool can_meet(std::span<const Collective> span) const;
  // Begins all calls of a launch, and links them by Op::next from `begun` on, which is null.
  void begin(Channel channel, std::span<const Collective> span, Op*& begun);
  // Drives the calls that are linked from `begun` on, whose inputs are copied with their flags. Takes those
  // that have ended out of the list and recycles them. Returns whether the list is empty; what is left has
  // to be enqueued.
  bool meet(Op*& begun, Works& owner);
  void enqueue(Op* op, HostWork& work);
  void forget(Op* begun);  // recycles what is linked from `begun` on, if the engine broke

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
  bool publish_to_meet(Op* begun);
  bool step_met(Op*& begun, bool at_once);
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
