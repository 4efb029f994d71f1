// Collectives of ours beside the machine's own limits and beside other libraries. README.md says what each
// column is.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "collectives/measure.h"
#include "collectives/report.h"
#include "collectives/sides.h"
#include "common/machine.h"
#include "common/peers.h"
#include "common/report.h"

using namespace gangway::bench;

namespace {

// Measures the rows, and prints the table of each operation when it is done.
std::vector<Result> measure_rows(const Settings& settings, const Crowd& crowd, Sides& sides,
                                 nlohmann::json* report) {
  std::vector<Result> all, of_one_operation;
  const auto print_table = [&] {
    std::printf("\n");
    print(of_one_operation);
    of_one_operation.clear();
  };
  for (const Row& row : rows_of(settings, crowd)) {
    if (stopped()) break;
    if (!of_one_operation.empty() && of_one_operation.back().row.op != row.op) print_table();
    if (isatty(2)) std::fprintf(stderr, "\r%s %zu \033[K", job_op_names[row.op], row.bytes);
    all.push_back(measure(settings, row, crowd, sides.columns(row)));
    of_one_operation.push_back(all.back());
    (*report)["rows"].push_back(json_of(all.back()));
    save(*report, settings.json);
  }
  if (!of_one_operation.empty()) print_table();
  return all;
}

void run_overlap(const Settings& settings, const Crowd& crowd, Sides& sides, nlohmann::json* report) {
  if (std::string("overlap").find(settings.only) == std::string::npos) return;
  if (crowd.crowded()) return (void)std::printf("\noverlap: no free core, not measured\n");
  const auto overlaps = measure_overlap(settings, sides.that_overlap());
  print(overlaps, crowd);
  for (const Overlap& o : overlaps) (*report)["overlap"].push_back(json_of(o, crowd));
}

int run(const Settings& settings) {
  if (settings.peers && !install_peers("collectives")) std::printf("installation of peers failed\n");
  const Machine machine = probe_machine();
  print(machine);
  nlohmann::json report = {{"machine", json_of(machine)}, {"rounds", settings.rounds}};
  for (const int ranks : settings.ranks) {
    const Crowd crowd{ranks, machine.cores};
    Sides sides(crowd);
    std::printf("\n%d ranks on %d cores, f32, %d rounds, median (p10..p90) of seconds a call; %s\n", ranks,
                machine.cores, settings.rounds,
                crowd.crowded() ? "ranks not pinned" : "ranks pinned, but Gloo's");
    sides.print();
    if (!sides.has_ours()) return 1;
    const std::vector<Result> results = measure_rows(settings, crowd, sides, &report);
    print_bytes(results);
    print_over_mpi(results);
    print_inside(results);
    if (!stopped()) run_overlap(settings, crowd, sides, &report);
    sides.print_lost();
    report["sides"][std::to_string(ranks)] = sides.json();
    save(report, settings.json);
    if (stopped()) break;
  }
  return exit_status();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Collectives beside the machine's limits and other libraries.", "collectives");
  app.add_option("--ranks", settings.ranks, "numbers of ranks, one table each (2 4)");
  app.add_option("--rounds", settings.rounds, "alternating rounds (7)")->check(CLI::Range(1, 1000));
  app.add_option("--burst", settings.burst_s, "aim of one measurement in seconds (0.004)");
  app.add_option("--only", settings.only, "rows whose operation contains this");
  app.add_option("--json", settings.json, "file for the same numbers");
  app.add_flag("--peers", settings.peers, "install the peers that are packages first");
  CLI11_PARSE(app, argc, argv);
  watch_for_stop();
  return run(settings);
}
