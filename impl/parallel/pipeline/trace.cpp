#include "parallel/pipeline/trace.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace gangway {
namespace {

constexpr int kRounds = 16;

static_assert(std::is_trivially_copyable_v<TraceEvent>);  // ranks of one build exchange them as bytes

void move_time(Gang& gang, CollectiveOp op, int peer, int64_t& time) {
  Collective c;
  c.op = op;
  if (op == CollectiveOp::send)
    c.in = &time;
  else
    c.out = &time;
  c.count = 1;
  c.dtype = DType::i64;
  c.peer = peer;
  gang.run_now(Channel::control, c);
}

// On rank 0: what the clock of `peer` is ahead.
int64_t measured_offset(Gang& gang, int peer) {
  int64_t quickest = INT64_MAX, offset = 0;
  for (int i = 0; i < kRounds; ++i) {
    int64_t theirs = 0, start = Trace::now_ns();
    move_time(gang, CollectiveOp::send, peer, start);
    move_time(gang, CollectiveOp::recv, peer, theirs);
    const int64_t took = Trace::now_ns() - start;
    if (took >= quickest) continue;
    quickest = took;
    offset = theirs - (start + took / 2);
  }
  return offset;
}

// How far this rank's clock is ahead of rank 0's.
int64_t clock_offset(Gang& gang) {
  if (!gang.has_peers() || gang.shared_memory() != nullptr) return 0;
  std::string offsets(static_cast<size_t>(gang.size()) * sizeof(int64_t), '\0');
  for (int peer = 1; peer < gang.size(); ++peer) {
    if (gang.rank() == 0) {
      const int64_t offset = measured_offset(gang, peer);
      std::memcpy(offsets.data() + static_cast<size_t>(peer) * sizeof offset, &offset, sizeof offset);
    }
    for (int i = 0; gang.rank() == peer && i < kRounds; ++i) {
      int64_t time = 0;
      move_time(gang, CollectiveOp::recv, 0, time);
      time = Trace::now_ns();
      move_time(gang, CollectiveOp::send, 0, time);
    }
  }
  offsets = gang.broadcast_bytes(Channel::control, offsets, 0);
  int64_t own = 0;
  std::memcpy(&own, offsets.data() + static_cast<size_t>(gang.rank()) * sizeof own, sizeof own);
  return own;
}

const char* row_of(const TraceEvent& event) {
  if (event.kind == TraceEvent::Kind::wait) return "wait";
  if (event.kind == TraceEvent::Kind::move) return "send and receive";
  return is_compute(event.action.kind) ? "compute" : "collectives";
}

std::string name_of(const TraceEvent& event) {
  if (event.action.stage < 0) return "end of the pass";
  const bool waits = event.kind == TraceEvent::Kind::wait;
  return waits ? "for " + text_of(event.action) : text_of(event.action);
}

std::string microseconds(int64_t ns) {
  const std::string rest = std::to_string(ns % 1000);
  return std::to_string(ns / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

}  // namespace

std::vector<std::vector<TraceEvent>> gather_trace(Gang& gang, const Trace& trace) {
  const int64_t offset = clock_offset(gang);
  std::vector<TraceEvent> own = trace.events();
  for (TraceEvent& event : own) {
    event.start_ns -= offset;
    event.end_ns -= offset;
  }
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(TraceEvent));
  std::vector<std::vector<TraceEvent>> all;
  int64_t first = INT64_MAX;
  for (const std::string& of_rank : gang.all_gather_bytes(Channel::control, bytes)) {
    std::vector<TraceEvent>& events = all.emplace_back(of_rank.size() / sizeof(TraceEvent));
    if (!events.empty()) std::memcpy(events.data(), of_rank.data(), of_rank.size());
    for (const TraceEvent& event : events) first = std::min(first, event.start_ns);
  }
  for (std::vector<TraceEvent>& events : all)
    for (TraceEvent& event : events) {
      event.start_ns -= first;
      event.end_ns -= first;
    }
  return all;
}

std::string chrome_json(const std::vector<std::vector<TraceEvent>>& ranks) {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t r = 0; r < ranks.size(); ++r) {
    out += text(r == 0 ? "" : ",\n", R"({"name": "process_name", "ph": "M", "pid": )", r,
                R"(, "args": {"name": "rank )", r, R"("}})");
    for (const TraceEvent& e : ranks[r])
      out +=
          text(",\n{\"name\": \"", name_of(e), "\", \"cat\": \"", row_of(e),
               "\", \"ph\": \"X\", \"pid\": ", r, ", \"tid\": \"", row_of(e),
               "\", \"ts\": ", microseconds(e.start_ns), ", \"dur\": ", microseconds(e.end_ns - e.start_ns),
               ", \"args\": {\"stage\": ", e.action.stage, ", \"microbatch\": ", e.action.microbatch, "}}");
  }
  return out + "\n]}\n";
}

}  // namespace gangway
