// A training step of the 8B plan on modelled GPUs, as a table, a trace and a picture.
//   timeline [--ranks 8] [--microbatches 8] [--prefetch 1] [--trace FILE.json] [--svg FILE.svg] [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/table.h"
#include "timeline/draw.h"
#include "timeline/plan.h"
#include "timeline/simulate.h"

namespace {

using namespace gangway;
using namespace gangway::bench;
using namespace gangway::timeline;
using gpu_emulation::Entry;
using gpu_emulation::Work;
using Json = nlohmann::json;

struct Request {
  int ranks = 8, microbatches = 8, prefetch = 1, layers = 32;
  std::string trace, svg, json;
};

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) std::fprintf(stderr, "timeline: cannot write %s\n", path.c_str());
}

// What one kind of work of rank 0 comes to.
struct Sum {
  int count = 0;
  double seconds = 0, flops = 0, bytes = 0;
};
std::map<std::string, Sum> sums_of(const std::vector<Entry>& rank, const RankTimes& times) {
  std::map<std::string, Sum> sums;
  for (size_t i = 0; i < rank.size(); ++i) {
    const Entry& e = rank[i];
    Sum& sum = sums[e.work == Work::product ? "product " + e.name : e.name];
    ++sum.count;
    sum.seconds += times.spans[i].end - times.spans[i].start;
    sum.flops += e.flops;
    sum.bytes += e.bytes;
  }
  return sums;
}

Json print_step(const StepLog& log, const StepTimes& times) {
  const RankTimes& first = times.ranks[0];
  std::printf(
      "step %s: compute %s, exposed communication %s (%s), neither %s; the host waits %d times; loss %g\n\n",
      duration(times.length).c_str(), duration(first.compute).c_str(), duration(first.exposed).c_str(),
      percent(first.exposed / times.length).c_str(), duration(first.idle).c_str(), host_waits(log.ranks[0]),
      log.loss);
  Table table({"work of rank 0", "count", "time", "TFLOP", "GB"});
  Json rows;
  for (const auto& [name, sum] : sums_of(log.ranks[0], first)) {
    table.row({name, std::to_string(sum.count), duration(sum.seconds), fixed(sum.flops * 1e-12, 2),
               fixed(sum.bytes * 1e-9, 2)});
    rows[name] = {{"count", sum.count}, {"seconds", sum.seconds}, {"flops", sum.flops}, {"bytes", sum.bytes}};
  }
  table.print();
  return {{"seconds", times.length},
          {"compute", first.compute},
          {"exposed", first.exposed},
          {"idle", first.idle},
          {"exposed share", first.exposed / times.length},
          {"host waits", host_waits(log.ranks[0])},
          {"work", rows}};
}

// The longest stretches in which communication is exposed.
void print_gaps(const std::vector<Entry>& rank, const RankTimes& times) {
  struct Stretch {
    double start, end;
    std::string before, after;
  };
  std::vector<Stretch> gaps;
  double last = 0;
  std::string before = "the step's begin";
  for (size_t i = 0; i < rank.size(); ++i) {
    if (!computes(rank[i])) continue;
    if (times.spans[i].start - last > 20e-6)
      gaps.push_back({last, times.spans[i].start, before, rank[i].name});
    last = std::max(last, times.spans[i].end);
    before = rank[i].name;
  }
  std::sort(gaps.begin(), gaps.end(),
            [](const auto& a, const auto& b) { return a.end - a.start > b.end - b.start; });
  std::printf("\nlongest stretches without a kernel:\n");
  for (size_t i = 0; i < gaps.size() && i < 8; ++i)
    std::printf("  %s from %s on, between %s and %s\n", duration(gaps[i].end - gaps[i].start).c_str(),
                duration(gaps[i].start).c_str(), gaps[i].before.c_str(), gaps[i].after.c_str());
}

Json print_launches(const Plan& plan) {
  const BlockLaunches block = block_launches(plan);
  const auto counted = [](const std::vector<std::string>& names) {
    std::map<std::string, int> counts;
    for (const std::string& name : names) ++counts[name];
    std::string words;
    for (const auto& [name, count] : counts)
      words += (words.empty() ? "" : ", ") + std::to_string(count) + " " + name;
    return words;
  };
  std::printf("\nlaunches of one block: forward %zu (%s)\n                       backward %zu (%s)\n",
              block.forward.size(), counted(block.forward).c_str(), block.backward.size(),
              counted(block.backward).c_str());
  return {{"forward", block.forward}, {"backward", block.backward}};
}

}  // namespace

int main(int count, char** arguments) {
  Request request;
  CLI::App app("A training step of the 8B plan on modelled GPUs.", "timeline");
  app.add_option("--ranks", request.ranks)->check(CLI::Range(2, 8));
  app.add_option("--layers", request.layers)->check(CLI::Range(1, 256));
  app.add_option("--microbatches", request.microbatches, "of a step, each of one sequence")
      ->check(CLI::Range(1, 64));
  app.add_option("--prefetch", request.prefetch, "parameter groups gathered ahead")->check(CLI::Range(0, 8));
  app.add_option("--trace", request.trace, "file for ui.perfetto.dev");
  app.add_option("--svg", request.svg, "picture of rank 0");
  app.add_option("--json", request.json);
  CLI11_PARSE(app, count, arguments);
  try {
    Plan plan = plan_8b();
    plan.ranks = request.ranks;
    plan.model.layers = request.layers;
    plan.microbatches = request.microbatches;
    plan.sequences = request.microbatches;
    plan.shard.prefetch_forward = plan.shard.prefetch_backward = request.prefetch;
    const StepLog log = run_step(plan);
    const StepTimes times = simulate(log.ranks, Rates());
    Json all = print_step(log, times);
    print_gaps(log.ranks[0], times.ranks[0]);
    all["launches of a block"] = print_launches(plan);
    if (!request.trace.empty()) write_trace(log.ranks, times, request.trace);
    if (!request.svg.empty())
      write(request.svg, draw_svg(picture(log.ranks[0], times.ranks[0],
                                          "8B, rank 0 of " + std::to_string(plan.ranks) + ", ms")));
    if (!request.json.empty()) write(request.json, all.dump(1) + "\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "timeline: %s\n", error.what());
    return 1;
  }
  return 0;
}
