// The bubble of a pipeline as it runs beside that of the checker. Ranks are threads; a computation is a sleep, so cores do
// not matter, and what is measured is the runtime: how late it starts what it could have started.
//   pipeline_bubble [--ranks 4] [--microbatches 8] [--forward-ms 100] [--rounds 3] [--trace PREFIX]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/report.h"
#include "common/table.h"
#include "gang/begin_trace.h"
#include "parallel/pipeline/checker.h"
#include "parallel/pipeline/generators.h"
#include "parallel/pipeline/manual_pipeline.h"
#include "support/scratch.h"
#include "tools/pipeline_timeline.h"
#include "tools/trace_files.h"

namespace {

using namespace gangway;
using namespace gangway::bench;
using Traces = std::vector<std::vector<TraceEvent>>;

struct Request {
  int ranks = 4, microbatches = 8, rounds = 3;
  double forward_ms = 100;
  int64_t elements = 1 << 18;  // between two stages, f32
  std::string trace;
  bool json = false;
  std::vector<std::string> schedules = {"1f1b", "interleaved-1f1b", "zb-h1", "zbv"};
};

std::vector<StageCost> costs_of(const Schedule& schedule, const Request& request) {
  std::vector<StageCost> costs = unit_costs(schedule);
  for (StageCost& cost : costs) {
    cost.forward *= request.forward_ms;
    cost.input *= request.forward_ms;
    cost.weight *= request.forward_ms;
  }
  return costs;
}

double milliseconds(ActionKind kind, const StageCost& cost) {
  switch (kind) {
    case ActionKind::forward: return cost.forward;
    case ActionKind::backward: return cost.input + cost.weight;
    case ActionKind::input_gradient: return cost.input;
    case ActionKind::weight_gradient: return cost.weight;
    default: return 0;
  }
}

// One pass of one rank.
void pass(ManualPipeline& pipeline, const std::vector<StageCost>& costs, const Tensor& tensor) {
  Stream& stream = pipeline.device().stream();
  for (PassAction action; pipeline.next(action, stream);) {
    const double ms = milliseconds(action.kind, costs[static_cast<size_t>(action.stage)]);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
    const bool forward = action.kind == ActionKind::forward;
    const bool gives = forward
                           ? !pipeline.is_last(action.stage)
                           : action.kind != ActionKind::weight_gradient && !pipeline.is_first(action.stage);
    pipeline.done(gives ? std::span<const Tensor>(&tensor, 1) : std::span<const Tensor>(), stream);
  }
}

// `folder`: gets the traces of the ranks.
Traces run(const std::string& name, const Request& request, const std::string& folder) {
  GangOptions options;
  options.threads = 1;
  const std::vector<GangPtr> roots = Gang::create_threads(request.ranks, options);
  std::vector<std::thread> threads;
  for (const GangPtr& root : roots)
    threads.emplace_back([&, root] {
      ManualPipelineOptions manual;
      manual.pipeline.schedule = name;
      manual.pipeline.microbatches = request.microbatches;
      ManualPipeline pipeline(*root, manual);
      const std::vector<StageCost> costs = costs_of(pipeline.schedule(), request);
      const Tensor tensor = Tensor::allocate(root->device().allocator(), DType::f32, Shape{request.elements});
      pass(pipeline, std::vector<StageCost>(costs.size(), {0, 0, 0, 0, 0}), tensor);  // takes memory
      root->barrier();
      begin_trace(*root, folder);
      pass(pipeline, costs, tensor);
      root->owner()->tracer().end();
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> left_out;
  std::vector<RankFile> files = rank_files(folder, left_out);
  if (!request.trace.empty()) merge_traces(files, request.trace + name + ".json");
  return pipeline_pass(files, -1);
}

// The part of the ranks' time in which none of the asked-for compute runs. A sleep that is too long counts as idle.
double bubble_of(const Traces& traces, const std::vector<StageCost>& costs) {
  int64_t first = INT64_MAX, last = 0;
  double busy_ms = 0;
  for (const auto& events : traces)
    for (const TraceEvent& e : events) {
      if (e.kind != TraceEvent::Kind::work) continue;
      first = std::min(first, e.start_ns);
      last = std::max(last, e.end_ns);
      busy_ms += milliseconds(e.action.kind, costs[static_cast<size_t>(e.action.stage)]);
    }
  return 1 - busy_ms / (static_cast<double>(last - first) * 1e-6 * static_cast<double>(traces.size()));
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) std::fprintf(stderr, "pipeline_bubble: cannot write %s\n", path.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  Request request;
  CLI::App app("The bubble of pipelines, measured with sleeping stages, beside the checker's.",
               "pipeline_bubble");
  app.add_option("--ranks", request.ranks)->capture_default_str();
  app.add_option("--microbatches", request.microbatches)->capture_default_str();
  app.add_option("--forward-ms", request.forward_ms, "of a forward and of each half of a backward, a rank")
      ->capture_default_str();
  app.add_option("--elements", request.elements, "f32, of what goes between stages")->capture_default_str();
  app.add_option("--rounds", request.rounds)->capture_default_str();
  app.add_option("--schedule", request.schedules);
  app.add_option("--trace", request.trace, "PREFIX of .json (Perfetto) and .svg files of the last rounds");
  app.add_flag("--json", request.json);
  CLI11_PARSE(app, count, arguments);
  watch_for_stop();
  Table table({"schedule", "checker", "measured, median", "least", "most", "points over"});
  nlohmann::json rows;
  for (const std::string& name : request.schedules) {
    const Schedule schedule = make_schedule(name, {request.ranks, request.microbatches, 0});
    const std::vector<StageCost> costs = costs_of(schedule, request);
    const double promised = simulate(schedule, costs).bubble();
    std::vector<double> measured;
    Traces traces;
    if (stopped()) break;
    for (int i = 0; i < request.rounds && !stopped(); ++i) {
      const Scratch folder;
      traces = run(name, request, folder.path());
      measured.push_back(bubble_of(traces, costs));
    }
    std::sort(measured.begin(), measured.end());
    const double median = measured[measured.size() / 2];
    table.row({name, percent(promised), percent(median), percent(measured.front()), percent(measured.back()),
               fixed((median - promised) * 100, 2)});
    rows.push_back({{"schedule", name}, {"checker", promised}, {"measured", measured}});
    if (request.trace.empty()) continue;
    const std::string title = text(name, " as it ran: bubble ", percent(measured.back()));
    write(request.trace + name + ".svg", draw_svg(timeline_of(traces, title)));
  }
  std::printf("%d ranks (threads), %d microbatches, %g ms a forward\n\n", request.ranks, request.microbatches,
              request.forward_ms);
  table.print();
  if (request.json) std::printf("%s\n", rows.dump(2).c_str());
  return exit_status();
}
