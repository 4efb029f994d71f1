#include "gang/host/call/flight_recorder.h"

#include "gang/host/call/ticks.h"

namespace gangway::host {
namespace {

constexpr size_t kFlights = 64;

}  // namespace

FlightRecorder::FlightRecorder() : ring_(kFlights), born_ns_(now_ns()), born_ticks_(ticks()) {}

void FlightRecorder::begin(Op& op, size_t bytes) {
  op.flight = count_++;
  ring_[op.flight % kFlights] = {op.sequence, bytes, ticks(), 0, op.channel, op.c.op};
}

void FlightRecorder::end(const Op& op) noexcept {
  // Otherwise a later call has overwritten the entry.
  if (op.flight + kFlights >= count_) ring_[op.flight % kFlights].end = ticks();
}

void FlightRecorder::end_met(const Op& op, bool at_once) noexcept {
  Flight& flight = ring_[op.flight % kFlights];
  flight.end = at_once && flight.bytes <= kSmall ? flight.start : ticks();
}

double FlightRecorder::ns_per_tick() const {
  return static_cast<double>(now_ns() - born_ns_) /
         static_cast<double>(std::max<uint64_t>(1, ticks() - born_ticks_));
}

int64_t FlightRecorder::begun_ns(const Op& op) const {
  if (op.flight + kFlights < count_) return born_ns_;  // the entry is overwritten, so the call began long ago
  const uint64_t start = ring_[op.flight % kFlights].start;
  return born_ns_ + static_cast<int64_t>(static_cast<double>(start - born_ticks_) * ns_per_tick());
}

uint64_t FlightRecorder::first() const { return count_ > kFlights ? count_ - kFlights : 0; }

FlightEntry FlightRecorder::entry(uint64_t number, double ns_per_tick) const {
  const Flight& f = ring_[number % kFlights];
  const auto ns = [&](uint64_t t) {
    return static_cast<int64_t>(static_cast<double>(t - born_ticks_) * ns_per_tick);
  };
  const bool ended = f.end != 0;
  return {f.sequence, f.channel, f.op, f.bytes, ns(f.start), ended ? ns(f.end) : -1, ended ? "done" : ""};
}

}  // namespace gangway::host
