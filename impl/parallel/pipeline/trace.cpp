#include "parallel/pipeline/trace.h"

#include <string>

#include "base/error.h"

namespace gangway {
namespace {

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

}  // namespace

void add(Tracer& tracer, const TraceEvent& e) {
  tracer.add(TraceRow::pipeline, row_of(e), name_of(e), e.start_ns, e.end_ns,
             text("\"kind\": \"", e.action.stage < 0 ? "" : text_of(e.action.kind),
                  "\", \"stage\": ", e.action.stage, ", \"microbatch\": ", e.action.microbatch));
}

}  // namespace gangway
