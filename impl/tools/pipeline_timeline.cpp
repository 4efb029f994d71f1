#include "tools/pipeline_timeline.h"

#include "base/error.h"

namespace gangway {
namespace {

constexpr const char* kCollective = "#b9a3d9";

const char* colour_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "#7fb2e5";
    case ActionKind::backward: return "#8fce8f";
    case ActionKind::input_gradient: return "#b6dc8c";
    case ActionKind::weight_gradient: return "#f0c36d";
    default: return kCollective;
  }
}

std::vector<TimelineKey> keys() {
  return {{colour_of(ActionKind::forward), "F: forward"},
          {colour_of(ActionKind::backward), "B: whole backward"},
          {colour_of(ActionKind::input_gradient), "I: gradient of the input"},
          {colour_of(ActionKind::weight_gradient), "W: gradient of the weights"}};
}

}  // namespace

Timeline timeline_of(const Schedule& schedule, const ScheduleReport& report, const std::string& title) {
  Timeline t{title, {}, {}, keys()};
  for (size_t r = 0; r < schedule.rows.size(); ++r) {
    t.lanes.push_back("rank " + std::to_string(r));
    const ScheduleRow& row = schedule.rows[r];
    for (size_t i = 0; i < row.size(); ++i) {
      if (!is_compute(row[i].kind)) continue;
      const bool second = i > 0 && row[i - 1].fused_next;
      const ActionSpan& span = report.ranks[r].spans[i];
      t.bars.push_back({r, span.start, span.end, std::to_string(row[i].microbatch),
                        text(text_of(row[i]), ": ", span.start, " to ", span.end), colour_of(row[i].kind),
                        second, second || row[i].fused_next ? 2 : 1});
    }
  }
  return t;
}

Timeline timeline_of(const std::vector<std::vector<TraceEvent>>& ranks, const std::string& title) {
  Timeline t{title, {}, {}, keys()};
  t.keys.push_back({kCollective, "unshard, reshard, reduce"});
  for (size_t r = 0; r < ranks.size(); ++r) {
    t.lanes.push_back("rank " + std::to_string(r));
    for (const TraceEvent& e : ranks[r]) {
      if (e.kind != TraceEvent::Kind::work) continue;
      const double start = static_cast<double>(e.start_ns) * 1e-6, end = static_cast<double>(e.end_ns) * 1e-6;
      const std::string label = has_microbatch(e.action.kind) ? std::to_string(e.action.microbatch) : "";
      t.bars.push_back({r, start, end, label, text(text_of(e.action), ": ", start, " to ", end, " ms"),
                        colour_of(e.action.kind)});
    }
  }
  return t;
}

}  // namespace gangway
