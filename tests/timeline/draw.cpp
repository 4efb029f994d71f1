#include "timeline/draw.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/tracer.h"
#include "tools/trace_files.h"

namespace gangway::timeline {
namespace {

using gpu_emulation::Entry;
using gpu_emulation::Work;

int64_t ns(double seconds) { return std::llround(seconds * 1e9); }
double ms(double seconds) { return seconds * 1e3; }

std::string name_of(const Entry& e) {
  if (e.work == Work::product) return text("product ", e.m, " x ", e.n, " x ", e.k, " ", e.name);
  return e.name;
}

TraceRow row_of(const Entry& e) {
  if (e.work == Work::collective) return TraceRow::collective;
  return e.work == Work::host_wait ? TraceRow::wait : TraceRow::compute;
}

const char* colour_of(const Entry& e) {
  if (e.work == Work::product) return "#7fb2e5";
  if (e.work == Work::kernel && e.flops > 0) return "#8fce8f";
  if (e.work == Work::kernel) return "#f0c36d";
  if (e.name == "all_gather") return "#b9a3d9";
  return e.work == Work::collective ? "#e59a9a" : "#cccccc";
}

bool is_drawn(const Entry& e) { return e.work != Work::record && e.work != Work::wait; }

}  // namespace

void write_trace(const std::vector<std::vector<Entry>>& ranks, const StepTimes& times,
                 const std::string& path) {
  const std::string folder = path + ".ranks";
  for (size_t r = 0; r < ranks.size(); ++r) {
    Tracer tracer;
    tracer.begin(folder, 1, static_cast<int>(r), static_cast<int>(ranks.size()), 0);
    for (size_t i = 0; i < ranks[r].size(); ++i) {
      const Entry& e = ranks[r][i];
      const Span& span = times.ranks[r].spans[i];
      if (is_drawn(e))
        tracer.add(row_of(e), "modelled", name_of(e), ns(span.start), ns(span.end),
                   text("\"stream\": ", e.stream, ", \"bytes\": ", e.bytes, ", \"flops\": ", e.flops));
    }
    tracer.end();
  }
  std::vector<std::string> left_out;
  merge_traces(rank_files(folder, left_out), path);
  std::filesystem::remove_all(folder);
}

Timeline picture(const std::vector<Entry>& rank, const RankTimes& times, const std::string& title) {
  Timeline t{title, {"compute"}, {}, {}};
  std::map<uint64_t, size_t> lanes;  // of streams with collectives
  for (size_t i = 0; i < rank.size(); ++i) {
    const Entry& e = rank[i];
    const Span& span = times.spans[i];
    if (!computes(e) && e.work != Work::collective) continue;
    size_t lane = 0;
    if (e.work == Work::collective) {
      const auto [found, added] = lanes.emplace(e.stream, t.lanes.size());
      if (added) t.lanes.push_back(e.name);
      lane = found->second;
    }
    t.bars.push_back({lane, ms(span.start), ms(span.end), e.name,
                      text(name_of(e), ": ", ms(span.start), " to ", ms(span.end), " ms"), colour_of(e)});
  }
  t.keys = {{"#7fb2e5", "products"},
            {"#8fce8f", "attention"},
            {"#f0c36d", "other kernels"},
            {"#b9a3d9", "all-gather"},
            {"#e59a9a", "other collectives"}};
  return t;
}

}  // namespace gangway::timeline
