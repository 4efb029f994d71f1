// A ring of an engine's last calls: when each began, and whether it has ended. The time stamps are reads of
// the cycle counter, one or two for each call.
//
// Thread rule: under the core's mutex.
#pragma once

#include <vector>

#include "gang/engine.h"
#include "gang/host/call/op.h"

namespace gangway::host {

class FlightRecorder {
 public:
  FlightRecorder();
  void begin(Op& op, size_t bytes);
  void end(const Op& op) noexcept;
  // The same for a call that ended in Calls::meet. If `at_once` and the call is small, one time stamp is
  // enough.
  void end_met(const Op& op, bool at_once) noexcept;
  int64_t begun_ns(const Op& op) const;  // by the clock that the ranks of a host share

  // The numbers of the calls that the ring holds are [first, count).
  uint64_t first() const;
  uint64_t count() const { return count_; }
  // `state` is "done", or empty if the call has not ended. All entries of a report must use one scale,
  // because an end could otherwise lie before its start.
  FlightEntry entry(uint64_t number, double ns_per_tick) const;
  double ns_per_tick() const;

 private:
  struct Flight {
    uint64_t sequence = 0, bytes = 0, start = 0, end = 0;
    Channel channel = Channel::user;
    CollectiveOp op = CollectiveOp::barrier;
  };

  std::vector<Flight> ring_;
  uint64_t count_ = 0;
  const int64_t born_ns_;
  const uint64_t born_ticks_;
};

}  // namespace gangway::host
