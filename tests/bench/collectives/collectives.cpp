// Collectives of ours beside the machine's own limits and beside other libraries. README.md says what each
// column is.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "collectives/job.h"
#include "common/copy.h"
#include "common/machine.h"
#include "common/peers.h"
#include "common/rank.h"
#include "common/side.h"
#include "common/stats.h"
#include "common/table.h"

using namespace gangway::bench;

namespace {

struct Settings {
  std::vector<int> ranks = {2, 4};
  int rounds = 7;
  double burst_s = 0.004;  // aim of one measurement: shorter than a time slice of the scheduler
  bool peers = false;
  std::string json, only;
};

struct Row {
  job_op op;
  size_t bytes;
  bool in_place;
};

// How one side is asked about a row. `arena` is the job's field of that name.
struct Column {
  std::string name;
  Side* side;
  int arena;
  bool peer;
};

struct Measured {
  Samples seconds;               // a call, slowest rank
  double moved = 0, staged = 0;  // bytes a call, most of any rank
};

struct Result {
  Row row;
  int ranks;
  double flag_before, flag_after;
  std::map<std::string, Measured> columns;
};

constexpr double kPatience = 60;  // seconds for one burst

std::string line_of(const Row& row, size_t bytes, int arena, long warmup, long calls) {
  std::ostringstream line;
  line << "run " << job_op_names[row.op] << ' ' << bytes << ' ' << row.in_place << ' ' << arena << ' '
       << warmup << ' ' << calls;
  return line.str();
}

// Bytes that one rank copies at least, as a copy of so many (half of reads plus writes).
size_t copied_by_a_rank(const Row& row, int ranks) {
  const size_t n = static_cast<size_t>(ranks), s = row.bytes;
  size_t bytes = 0;
  switch (row.op) {
    case JOB_BARRIER:
    case JOB_NONE: break;
    case JOB_ALL_REDUCE: bytes = s; break;
    case JOB_ALL_GATHER: bytes = row.in_place ? s / n * (n - 1) : s; break;
    case JOB_REDUCE_SCATTER: bytes = (s + s / n) / 2; break;
    case JOB_BROADCAST: bytes = s / n * (n - 1); break;
  }
  return (bytes + 63) / 64 * 64;
}

bool burst(Column& column, const Row& row, size_t bytes, long warmup, long calls, double* seconds,
           Measured* to) {
  const auto replies = column.side->ask(line_of(row, bytes, column.arena, warmup, calls), kPatience);
  if (replies.empty()) return false;
  *seconds = 0;
  for (const std::string& reply : replies) {
    double own = 0, moved = 0, staged = 0;
    std::sscanf(reply.c_str(), "%lf %lf %lf", &own, &moved, &staged);
    *seconds = std::max(*seconds, own);
    if (to == nullptr) continue;
    to->moved = std::max(to->moved, moved);
    to->staged = std::max(to->staged, staged);
  }
  return true;
}

// All columns in turn, `rounds` times; how many calls a burst has is found out first.
Result measure(const Settings& settings, const Row& row, int ranks, std::vector<Column>& columns) {
  Result result{row, ranks, flag_latency(1), 0, {}};
  std::vector<long> calls(columns.size(), 0);
  const int rounds =
      settings.rounds * (row.bytes <= (4u << 20) ? 3 : 1);  // short ones are disturbed more easily
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < columns.size(); ++i) {
      Column& column = columns[i];
      if (column.side == nullptr || !column.side->alive()) continue;
      const bool limit = column.side->name() == "limit";
      const size_t bytes = limit ? copied_by_a_rank(row, ranks) : row.bytes;
      double seconds = 0;
      if (calls[i] == 0) {
        if (!burst(column, row, bytes, 2, 3, &seconds, nullptr)) continue;
        if (seconds < settings.burst_s / 20 && !burst(column, row, bytes, 2, 20, &seconds, nullptr)) continue;
        calls[i] = std::clamp(static_cast<long>(settings.burst_s / std::max(seconds, 1e-9)), 2L, 50000L);
      }
      Measured& measured = result.columns[column.name];
      if (burst(column, row, bytes, std::max(1L, calls[i] / 10), calls[i], &seconds, &measured))
        measured.seconds.add(seconds);
    }
  }
  result.flag_after = flag_latency(1);
  // The limit is the best way of copying, by median.
  for (const Copy copy : kCopies) {
    const auto found = result.columns.find(name(copy));
    if (found == result.columns.end()) continue;
    Measured& best = result.columns["limit"];
    if (best.seconds.empty() || found->second.seconds.median() < best.seconds.median()) best = found->second;
  }
  return result;
}

std::vector<Row> rows_of(const Settings& settings, bool crowded) {
  std::vector<Row> rows = {{JOB_BARRIER, 0, true}};
  const size_t ki = 1 << 10, mi = 1 << 20;
  for (const size_t bytes : {size_t{8}, 16 * ki, 256 * ki, 4 * mi, 64 * mi})
    if (!crowded || bytes <= 4 * mi) rows.push_back({JOB_ALL_REDUCE, bytes, true});
  for (const size_t bytes : {4 * mi, 64 * mi}) {
    if (crowded && bytes > 4 * mi) continue;
    if (!crowded) rows.push_back({JOB_ALL_REDUCE, bytes, false});
    rows.push_back({JOB_ALL_GATHER, bytes, false});
    rows.push_back({JOB_REDUCE_SCATTER, bytes, false});
    rows.push_back({JOB_BROADCAST, bytes, true});
  }
  std::erase_if(rows, [&](const Row& row) {
    return std::string(job_op_names[row.op]).find(settings.only) == std::string::npos;
  });
  return rows;
}

// --- sides

std::string beside_this_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

class Sides {
 public:
  Sides(const Settings& settings, int ranks, int cores) : ranks_(ranks) {
    const bool pin = ranks <= cores;
    pin_ = pin ? "1" : "0";
    start_limit();
    start_ours("gangway", "gangway_rank");
    start_ours("inside", "engine_rank");
    start_mpi("Open MPI", "mpicc.openmpi", "mpi_peer_openmpi",
              {"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n"});
    start_mpi("MPICH", "mpicc.mpich", "mpi_peer_mpich", {"mpiexec.mpich", "-bind-to", "none", "-n"});
    start_gloo();
    (void)settings;
  }
  ~Sides() {
    sides_.clear();
    if (!rendezvous_.empty()) std::filesystem::remove_all(rendezvous_);
  }

  std::vector<Column> columns(const Row& row) {
    const bool inside = row.op == JOB_BARRIER || (row.op == JOB_ALL_REDUCE && row.bytes <= 16384);
    std::vector<Column> all;
    for (int copy = 0; copy < 3; ++copy) all.push_back({name(kCopies[copy]), find("limit"), copy, false});
    all.push_back({"arena", find("gangway"), 1, false});
    if (row.op != JOB_BARRIER) all.push_back({"plain", find("gangway"), 0, false});
    if (inside) {
      all.push_back({"gang", find("inside"), 1, false});
      all.push_back({"engine", find("inside"), 0, false});
    }
    for (const char* peer : {"Open MPI", "MPICH", "Gloo"}) all.push_back({peer, find(peer), 0, true});
    std::erase_if(all, [](const Column& column) { return column.side == nullptr; });
    return all;
  }
  void print() const {
    for (const auto& side : sides_)
      std::printf("  %-9s %s\n", side->name().c_str(), side->greeting().c_str());
    for (const auto& [name, why] : absent_) std::printf("  %-9s ABSENT: %s\n", name.c_str(), why.c_str());
  }
  void print_lost() const {
    for (const auto& side : sides_)
      if (!side->alive())
        std::printf("  %s was lost on the way: %s\n", side->name().c_str(), side->why().c_str());
  }
  nlohmann::json json() const {
    nlohmann::json all;
    for (const auto& side : sides_) all[side->name()] = side->greeting();
    for (const auto& [name, why] : absent_) all[name] = "absent: " + why;
    return all;
  }
  bool has_ours() { return find("gangway") != nullptr; }

 private:
  Side* find(const std::string& name) {
    for (const auto& side : sides_)
      if (side->name() == name) return side.get();
    return nullptr;
  }
  void start(const std::string& name, const Launch& launch) {
    std::string why;
    auto side = Side::start(name, ranks_, launch, 40, &why);
    if (side)
      sides_.push_back(std::move(side));
    else
      absent_[name] = why;
  }
  void start_limit() {
    const std::string memory = "/gangway-bench-" + std::to_string(getpid());
    std::string why;
    Launch launch;
    launch.command = {
        beside_this_program("limit_rank"), "{socket}", "{copy}", std::to_string(ranks_), memory, pin_};
    launch.copies = ranks_;
    start("limit", launch);
    shm_unlink(memory.c_str());
  }
  void start_ours(const std::string& name, const std::string& program) {
    Launch launch;
    launch.command = {GANGWAY_BENCH_GANGRUN,
                      "-n",
                      std::to_string(ranks_),
                      "--no-prefix",
                      "--",
                      beside_this_program(program),
                      "{socket}",
                      pin_};
    start(name, launch);
  }
  void start_mpi(const std::string& name, const std::string& compiler, const std::string& program,
                 std::vector<std::string> command) {
    std::string why;
    const std::string path = compile_peer("mpi_peer.c", program, compiler + " -O2", "", &why);
    if (path.empty()) {
      absent_[name] = why;
      return;
    }
    Launch launch;
    for (const std::string& word : {std::to_string(ranks_), path, std::string("{socket}"), pin_})
      command.push_back(word);
    launch.command = command;
    // Else its temporaries are page-faulted in each call.
    launch.environment = {{"MALLOC_MMAP_THRESHOLD_", "1073741824"}, {"MALLOC_TRIM_THRESHOLD_", "2147483648"}};
    start(name, launch);
  }
  void start_gloo() {
    std::string why;
    const std::string path =
        compile_peer("gloo_peer.cpp", "gloo_peer", "g++ -std=c++17 -O2 -w", "-lgloo -pthread", &why);
    if (path.empty()) {
      absent_["Gloo"] = why;
      return;
    }
    char folder[] = "/tmp/gangway-gloo-XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    rendezvous_ = folder;
    Launch launch;
    launch.command = {path, "{socket}", "{copy}", std::to_string(ranks_), rendezvous_};
    launch.copies = ranks_;
    launch.environment = {{"MALLOC_MMAP_THRESHOLD_", "1073741824"}, {"MALLOC_TRIM_THRESHOLD_", "2147483648"}};
    start("Gloo", launch);
  }

  int ranks_;
  std::string pin_, rendezvous_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::map<std::string, std::string> absent_;
};

// --- what is printed

const Samples& seconds_of(const Result& result, const std::string& column) {
  static const Samples none;
  const auto found = result.columns.find(column);
  return found == result.columns.end() ? none : found->second.seconds;
}

std::string text_of(const Samples& s) {
  if (s.empty()) return "-";
  return range(s.median(), s.p10(), s.p90());
}

std::string best_peer(const Result& result) {
  std::string best;
  for (const char* peer : {"Open MPI", "MPICH", "Gloo"}) {
    const Samples& s = seconds_of(result, peer);
    if (!s.empty() && (best.empty() || s.median() < seconds_of(result, best).median())) best = peer;
  }
  return best;
}

std::string times(double ratio) { return std::isnan(ratio) ? "-" : fixed(ratio, 2) + "x"; }

std::string bytes_text(const Result& result, const std::string& column) {
  const auto found = result.columns.find(column);
  if (found == result.columns.end()) return "-";
  return size_text(found->second.moved) + "/" + size_text(found->second.staged);
}

// Goals of one row; empty when all are met or cannot be judged.
std::string misses(const Result& result) {
  std::string out;
  const Samples &arena = seconds_of(result, "arena"), &plain = seconds_of(result, "plain");
  const auto miss = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (arena.empty()) return "not measured";
  if (const std::string peer = best_peer(result); !peer.empty()) {
    if (paired_ratio(seconds_of(result, peer), arena) <= 1) miss("LOSES to " + peer);
    if (result.row.bytes >= 16384 && paired_ratio(seconds_of(result, peer), plain) < 1.5)
      miss("plain < 1.5x " + peer);
  }
  const double limit = seconds_of(result, "limit").median();
  if (!std::isnan(limit)) {
    if (result.row.bytes <= 8 && arena.median() > 1.5 * limit + 40e-9) miss("over 1.5 x bare + 40 ns");
    if (result.row.bytes >= (16u << 20) && limit / arena.median() < 0.8) miss("under 80 % of copy");
  }
  return out;
}

bool flag_moved(const Result& r) {
  return std::max(r.flag_before, r.flag_after) > 1.7 * std::min(r.flag_before, r.flag_after);
}

void print(const std::vector<Result>& results) {
  Table table({"op", "size", "in place", "arena", "plain", "limit", "limit/arena", "Open MPI", "MPICH",
               "Gloo", "peer/arena", "peer/plain", "moved/staged: arena", "plain", "flag", ""});
  for (const Result& r : results) {
    const std::string peer = best_peer(r);
    const Samples &arena = seconds_of(r, "arena"), &plain = seconds_of(r, "plain"),
                  &limit = seconds_of(r, "limit");
    table.row(
        {job_op_names[r.row.op], size_text(static_cast<double>(r.row.bytes)), r.row.in_place ? "yes" : "no",
         text_of(arena), text_of(plain), text_of(limit), percent(limit.median() / arena.median()),
         text_of(seconds_of(r, "Open MPI")), text_of(seconds_of(r, "MPICH")), text_of(seconds_of(r, "Gloo")),
         times(paired_ratio(seconds_of(r, peer), arena)), times(paired_ratio(seconds_of(r, peer), plain)),
         bytes_text(r, "arena"), bytes_text(r, "plain"),
         fixed(r.flag_before * 1e9, 0) + "/" + fixed(r.flag_after * 1e9, 0) + " ns" +
             (flag_moved(r) ? "!" : ""),
         misses(r)});
  }
  table.print();
}

void print_inside(const std::vector<Result>& results) {
  Table table(
      {"arena tensors, in place", "size", "C call", "gang", "engine", "checks of the gang", "of the C ABI"});
  for (const Result& r : results) {
    const Samples &call = seconds_of(r, "arena"), &gang = seconds_of(r, "gang"),
                  &engine = seconds_of(r, "engine");
    if (gang.empty() || engine.empty()) continue;
    const auto difference = [](double s) { return fixed(s * 1e9, 0) + " ns"; };
    table.row({job_op_names[r.row.op], size_text(static_cast<double>(r.row.bytes)), text_of(call),
               text_of(gang), text_of(engine), difference(gang.median() - engine.median()),
               difference(call.median() - gang.median())});
  }
  table.print();
}

nlohmann::json json_of(const Result& r) {
  nlohmann::json j = {{"op", job_op_names[r.row.op]}, {"bytes", r.row.bytes},
                      {"in_place", r.row.in_place},   {"ranks", r.ranks},
                      {"flag_before", r.flag_before}, {"flag_after", r.flag_after},
                      {"misses", misses(r)}};
  for (const auto& [name, m] : r.columns)
    j["columns"][name] = {{"median", m.seconds.median()}, {"p10", m.seconds.p10()},
                          {"p90", m.seconds.p90()},       {"rounds", m.seconds.values},
                          {"bytes_moved", m.moved},       {"bytes_staged", m.staged}};
  return j;
}

int run(const Settings& settings) {
  if (settings.peers && !install_peers("collectives")) std::printf("installation of peers failed\n");
  const Machine machine = probe_machine();
  print(machine);
  nlohmann::json report = {{"machine", json_of(machine)}, {"rounds", settings.rounds}};
  for (const int ranks : settings.ranks) {
    const bool crowded = ranks > machine.cores;
    Sides sides(settings, ranks, machine.cores);
    std::printf("\n%d ranks on %d cores, f32, %d rounds, median (p10..p90) of seconds a call; %s\n", ranks,
                machine.cores, settings.rounds, crowded ? "ranks not pinned" : "ranks pinned, but Gloo's");
    sides.print();
    if (!sides.has_ours()) return 1;
    std::vector<Result> results;
    for (const Row& row : rows_of(settings, crowded)) {
      auto columns = sides.columns(row);
      results.push_back(measure(settings, row, ranks, columns));
      report["rows"].push_back(json_of(results.back()));
      if (isatty(2)) std::fprintf(stderr, "\r%s %zu   ", job_op_names[row.op], row.bytes);
    }
    std::printf("\n");
    print(results);
    std::printf("\n");
    print_inside(results);
    sides.print_lost();
    report["sides"][std::to_string(ranks)] = sides.json();
  }
  if (!settings.json.empty()) std::ofstream(settings.json) << report.dump(1) << "\n";
  return 0;
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
  return run(settings);
}
