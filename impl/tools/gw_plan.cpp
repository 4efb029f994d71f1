// gw-plan tells what a training would do before it runs. `gw-plan schedule` gives a pipeline schedule's time,
// bubble and memory, as a table and as a picture. `gw-plan model` gives the memory of each rank by mesh.
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "base/error.h"
#include "parallel/pipeline/checker.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/generators.h"
#include "tools/arguments.h"
#include "tools/pipeline_timeline.h"
#include "tools/plan_model_command.h"

namespace {

using namespace gangway;

struct Request {
  std::string name = "1f1b", file, csv, svg;
  ScheduleOptions options;
  // The time that a rank computes for one microbatch, over all its stages.
  double forward = 1, input = 1, weight = 1;
  int fsdp = 0;
};

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail(Code::io, "cannot write ", path);
}

Schedule schedule_of(const Request& request) {
  if (request.file.empty()) return make_schedule(request.name, request.options);
  std::ifstream file(request.file, std::ios::binary);
  if (!file) fail(Code::io, "cannot read ", request.file);
  Schedule schedule = schedule_from_csv(std::string(std::istreambuf_iterator<char>(file), {}));
  schedule.name = request.file;
  return schedule;
}

std::string stages_text(const Schedule& schedule, size_t rank) {
  std::string out;
  for (int s = 0; s < schedule.stages(); ++s)
    if (schedule.stage_rank[static_cast<size_t>(s)] == static_cast<int>(rank))
      out += (out.empty() ? "" : " ") + std::to_string(s);
  return out;
}

void print(const Schedule& schedule, const ScheduleReport& report, const std::string& title) {
  std::printf("%s\n\n%-6s%-14s%10s%16s%14s%16s\n", title.c_str(), "rank", "stages", "busy", "window bubble",
              "activations", "weight inputs");
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const RankReport& rank = report.ranks[r];
    std::printf("%-6zu%-14s%10.4g%16.4g%14d%16d\n", r, stages_text(schedule, r).c_str(), rank.busy,
                rank.window_bubble(), rank.peak_activations, rank.peak_weight_inputs);
  }
  std::printf(
      "\nwindow bubble: idle time between a rank's first and last computation; activations: most "
      "microbatches times\n"
      "stages that wait between F and the end of the backward; weight inputs: most that wait between I and "
      "W.\n");
}

void run_schedule(const Request& request) {
  Schedule schedule = schedule_of(request);
  check_schedule(schedule);
  std::vector<StageCost> costs = unit_costs(schedule);
  for (StageCost& cost : costs)
    cost = {cost.forward * request.forward, cost.input * request.input, cost.weight * request.weight, 0, 0};
  const ScheduleReport report = simulate(schedule, costs);
  const double ideal = schedule.microbatches * (request.forward + request.input + request.weight);
  const std::string title =
      text(schedule.name, ": ", schedule.ranks(), " ranks, ", schedule.stages(), " stages, ",
           schedule.microbatches, " microbatches; makespan ", report.makespan, ", without bubble ", ideal,
           ", bubble ", std::round(report.bubble() * 1000) / 10, " %");
  print(schedule, report, title);
  if (!request.svg.empty()) write(request.svg, draw_svg(timeline_of(schedule, report, title)));
  if (request.csv.empty()) return;
  if (request.file.empty()) schedule = with_communication(schedule);
  if (request.fsdp > 0) schedule = with_fsdp(schedule, request.fsdp);
  check_schedule(schedule);
  write(request.csv, to_csv(schedule));
}

std::string names() {
  std::string out;
  for (const std::string& name : schedule_names()) out += (out.empty() ? "" : ", ") + name;
  return out;
}

tools::CommandLine schedule_line(Request& request) {
  return {
      "schedule",
      "time, bubble and memory of a pipeline schedule",
      {{"--name", &request.name, "one of " + names(), {.default_shown = true}},
       {"--ranks", &request.options.ranks, "ranks of the pipeline"},
       {"--microbatches", &request.options.microbatches, "of a step"},
       {"--stages-per-rank", &request.options.stages_per_rank, "default: the schedule's own"},
       {"--file",
        &request.file,
        "read the schedule from this CSV file instead",
        {.excludes = {"--name", "--ranks", "--microbatches"}}},
       {"--forward", &request.forward, "time of a forward, a rank and microbatch", {.default_shown = true}},
       {"--input", &request.input, "time of the input half of a backward", {.default_shown = true}},
       {"--weight", &request.weight, "time of the weight half of a backward", {.default_shown = true}},
       {"--svg", &request.svg, "draw the timeline into this file"},
       {"--csv", &request.csv, "write the schedule, with sends and receives, into this file"},
       {"--fsdp", &request.fsdp,
        "with --csv: add UNSHARD, RESHARD and REDUCE_GRAD, so many stages at most"}}};
}

}  // namespace

int main(int count, char** arguments) {
  std::string command;
  Request request;
  ModelCommand model;
  const tools::CommandLine line = {"gw-plan",
                                   "gw-plan: what a training would do, told before it runs.",
                                   {{"--version", tools::Version{GANGWAY_VERSION}}},
                                   {schedule_line(request), model_line(model)},
                                   &command};
  if (const std::optional<int> status = tools::read_arguments(line, count, arguments)) return *status;
  try {
    if (command == "model")
      run_model(model);
    else
      run_schedule(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-plan: %s\n", error.what());
    return 1;
  }
  return 0;
}
