// gw-trace merges the traces of a run's ranks, and draws what its pipeline did.
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "tools/arguments.h"
#include "tools/pipeline_timeline.h"
#include "tools/trace_files.h"

namespace {

using namespace gangway;

struct Request {
  std::string folder, json, svg;
  int pass = -1;
};

double milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// Prints the times of one pass, which lasts from the first computation of any rank to the last one.
void print_pass(const std::vector<std::vector<TraceEvent>>& pass, const std::vector<RankFile>& files) {
  int64_t first = INT64_MAX, last = 0, busy_of_all = 0;
  std::vector<int64_t> busy(pass.size()), waits(pass.size());
  for (size_t r = 0; r < pass.size(); ++r)
    for (const TraceEvent& e : pass[r]) {
      if (e.kind == TraceEvent::Kind::wait) waits[r] += e.end_ns - e.start_ns;
      if (e.kind != TraceEvent::Kind::work) continue;
      busy[r] += e.end_ns - e.start_ns;
      busy_of_all += e.end_ns - e.start_ns;
      first = std::min(first, e.start_ns);
      last = std::max(last, e.end_ns);
    }
  const double length = milliseconds(last - first) * static_cast<double>(pass.size());
  std::printf("\n%-6s%12s%12s\n", "rank", "busy ms", "waits ms");
  for (size_t r = 0; r < pass.size(); ++r)
    std::printf("%-6d%12.4g%12.4g\n", files[r].rank, milliseconds(busy[r]), milliseconds(waits[r]));
  std::printf("makespan %.4g ms, bubble %.1f %%\n", milliseconds(last - first),
              100 * (1 - milliseconds(busy_of_all) / length));
}

// Names the ranks that have no file: the first ones, and the number of the others.
void name_missing_ranks(const std::vector<RankFile>& files) {
  constexpr int kNamed = 16;
  std::set<int> present;
  for (const RankFile& file : files) present.insert(file.rank);
  const int ranks = files[0].ranks;
  int missing = 0;
  for (int rank = 0; rank < ranks; ++rank)
    if (!present.contains(rank) && ++missing <= kNamed)
      std::printf("rank %d of %d has no file here\n", rank, ranks);
  if (missing > kNamed) std::printf("%d more ranks have no file here\n", missing - kNamed);
}

void run(const Request& request) {
  std::vector<std::string> left_out;
  std::vector<RankFile> files = rank_files(request.folder, left_out);
  for (const std::string& file : left_out) std::printf("left out: %s\n", file.c_str());
  const std::string json = request.json.empty() ? request.folder + "/trace.json" : request.json;
  const size_t events = merge_traces(files, json, request.json.empty() ? Links::refused : Links::followed);
  std::printf("%s: %zu events of %zu ranks\n", json.c_str(), events, files.size());
  name_missing_ranks(files);
  const size_t ranks = files.size();
  const auto pass = pipeline_pass(files, request.pass);
  if (!pass.empty() && files.size() < ranks)
    std::printf("%zu ranks have ended no pass of a pipeline\n", ranks - files.size());
  if (pass.empty() && request.pass >= 0)
    fail(Code::invalid_argument, "the ranks have not all ended a pass ", request.pass, " of a pipeline");
  if (pass.empty()) return;
  const std::string svg = request.svg.empty() ? request.folder + "/pipeline.svg" : request.svg;
  const std::string title = request.pass < 0 ? "last pass" : "pass " + std::to_string(request.pass);
  TraceOutput picture(svg, request.svg.empty() ? Links::refused : Links::followed);
  picture.write(draw_svg(timeline_of(pass, text("the pipeline as it ran, ", title, ", ms"))));
  picture.close();
  std::printf("%s: %s of the pipeline\n", svg.c_str(), title.c_str());
  print_pass(pass, files);
}

}  // namespace

int main(int count, char** arguments) {
  Request request;
  const tools::CommandLine line = {
      "gw-trace",
      "gw-trace: puts the traces of a run's ranks together, and draws what its pipeline did.",
      {{"--version", tools::Version{GANGWAY_VERSION}},
       {"folder", &request.folder, "where the run was told to write (GANGWAY_TRACE)", {.required = true}},
       {"--json", &request.json, "the file for the viewers; default: trace.json in the folder"},
       {"--svg", &request.svg, "the picture of a pipeline; default: pipeline.svg in the folder"},
       {"--pass",
        &request.pass,
        "which pass to draw, from 0; default: the last one",
        {.must = tools::NotNegative{}}}}};
  if (const std::optional<int> status = tools::read_arguments(line, count, arguments)) return *status;
  try {
    run(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-trace: %s\n", error.what());
    return 1;
  }
  return 0;
}
