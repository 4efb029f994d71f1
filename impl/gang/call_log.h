// The counters and the flight record of an engine that keeps none of its own.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <deque>
#include <mutex>
#include <vector>

#include "gang/engine.h"

namespace gangway {

class CallLog {
 public:
  CallLog();

  // Records that a call begins. The caller passes the result to end(). `elements` is the larger of the sizes
  // of input and output.
  uint64_t begin(Channel channel, const Collective& c, size_t elements, uint64_t bytes_received);
  void end(uint64_t number, const char* state);

  Traffic traffic() const;
  std::vector<FlightEntry> flight_record() const;

 private:
  const int64_t made_ns_;
  mutable std::mutex mutex_;
  Traffic traffic_;
  std::array<uint64_t, kChannels> sequence_{};
  std::deque<FlightEntry> flight_;
};

}  // namespace gangway
