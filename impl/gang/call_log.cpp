#include "gang/call_log.h"

#include <chrono>

namespace gangway {
namespace {

constexpr size_t kEntries = 64;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Deadline::Clock::now().time_since_epoch())
      .count();
}

}  // namespace

CallLog::CallLog() : made_ns_(now_ns()) {}

uint64_t CallLog::begin(Channel channel, const Collective& c, size_t elements, uint64_t bytes_received) {
  const int64_t now = now_ns() - made_ns_;
  const std::lock_guard lock(mutex_);
  traffic_.bytes_moved += bytes_received;
  if (flight_.size() == kEntries) flight_.pop_front();
  flight_.push_back({sequence_[static_cast<size_t>(channel)]++, channel, c.op, elements * item_bytes(c.dtype),
                     now, -1, "waiting"});
  return traffic_.calls++;
}

void CallLog::end(uint64_t number, const char* state) {
  const int64_t now = now_ns() - made_ns_;
  const std::lock_guard lock(mutex_);
  const uint64_t back = traffic_.calls - number;  // counted from the newest entry, which is 1
  if (back > flight_.size()) return;
  FlightEntry& entry = flight_[flight_.size() - back];
  entry.end_ns = now;
  entry.state = state;
}

Traffic CallLog::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

std::vector<FlightEntry> CallLog::flight_record() const {
  const std::lock_guard lock(mutex_);
  return {flight_.begin(), flight_.end()};
}

}  // namespace gangway
