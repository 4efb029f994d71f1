#include "parallel/pipeline/trace.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "gang/traced.h"

namespace gangway {
namespace {

static_assert(std::is_trivially_copyable_v<TraceEvent>);  // ranks of one build exchange them as bytes

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

void add(Tracer& tracer, const TraceEvent& e) {
  tracer.add(TraceRow::pipeline, row_of(e), name_of(e), e.start_ns, e.end_ns,
             text("\"kind\": \"", e.action.stage < 0 ? "" : text_of(e.action.kind),
                  "\", \"stage\": ", e.action.stage, ", \"microbatch\": ", e.action.microbatch));
}

std::vector<std::vector<TraceEvent>> gather_trace(Gang& gang, const Trace& trace) {
  const int64_t offset = clock_ahead_ns(gang);
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
