#include "collectives/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "collectives/sides.h"
#include "common/table.h"

namespace gangway::bench {
namespace {

const Samples& seconds_of(const Result& result, const char* column) {
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
  for (const char* peer : kPeers) {
    const Samples& s = seconds_of(result, peer);
    if (!s.empty() && (best.empty() || s.median() < seconds_of(result, best.c_str()).median())) best = peer;
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
    if (paired_ratio(seconds_of(result, peer.c_str()), arena) <= 1) miss("LOSES to " + peer);
    if (result.row.bytes >= 16384 && paired_ratio(seconds_of(result, peer.c_str()), plain) < 1.5)
      miss("plain < 1.5x " + peer);
  }
  const double limit = seconds_of(result, "limit").median();
  if (!std::isnan(limit)) {
    if (result.row.bytes <= 8 && arena.median() > 1.5 * limit + 40e-9) miss("over 1.5 x bare + 40 ns");
    if (result.row.bytes >= (16u << 20) && limit / arena.median() < 0.8) miss("under 80 % of copy");
  }
  if (result.row.op == JOB_BARRIER && result.crowd.ranks == 8 && result.crowd.cores == 2 &&
      arena.median() > 60e-6)
    miss("over 60 us");
  return out;
}

bool flag_moved(const Result& r) {
  return std::max(r.flag_before, r.flag_after) > 1.7 * std::min(r.flag_before, r.flag_after);
}

// Bytes a second over the bus as nccl-tests count them; NaN for a barrier.
double bus_bandwidth(const Result& result, const Samples& s) {
  const double n = result.crowd.ranks;
  double factor = 1;
  switch (result.row.op) {
    case JOB_ALL_REDUCE: factor = 2 * (n - 1) / n; break;
    case JOB_ALL_GATHER:
    case JOB_ALL_TO_ALL:
    case JOB_REDUCE_SCATTER: factor = (n - 1) / n; break;
    case JOB_BROADCAST:
    case JOB_EXCHANGE:
    case JOB_SEND_RECV: break;
    default: return NAN;
  }
  return factor * static_cast<double>(result.row.bytes) / s.median();
}

std::string gigabytes(double bytes) { return fixed(bytes / 1e9, bytes < 1e9 ? 3 : bytes < 10e9 ? 2 : 1); }

}  // namespace

void print(const std::vector<Result>& results) {
  if (results.empty()) return;
  Table table({"op", "size", "in place", "arena", "plain", "limit", "limit/arena", "Open MPI", "MPICH",
               "Gloo", "peer/arena", "peer/plain", "flag", ""});
  for (const Result& r : results) {
    const std::string peer = best_peer(r);
    const Samples &arena = seconds_of(r, "arena"), &plain = seconds_of(r, "plain"),
                  &limit = seconds_of(r, "limit");
    table.row({job_op_names[r.row.op], size_text(static_cast<double>(r.row.bytes)),
               r.row.in_place ? "yes" : "no", text_of(arena), text_of(plain), text_of(limit),
               percent(limit.median() / arena.median()), text_of(seconds_of(r, "Open MPI")),
               text_of(seconds_of(r, "MPICH")), text_of(seconds_of(r, "Gloo")),
               times(paired_ratio(seconds_of(r, peer.c_str()), arena)),
               times(paired_ratio(seconds_of(r, peer.c_str()), plain)),
               fixed(r.flag_before * 1e9, 0) + "/" + fixed(r.flag_after * 1e9, 0) + " ns" +
                   (flag_moved(r) ? "!" : ""),
               misses(r)});
  }
  table.print();
}

void print_bytes(const std::vector<Result>& results) {
  Table table({"busbw, GB/s", "size", "in place", "arena", "plain", "Open MPI", "MPICH", "Gloo",
               "moved/staged: arena", "plain"});
  bool any = false;
  for (const Result& r : results) {
    if (r.row.op == JOB_BARRIER) continue;
    any = true;
    std::vector<std::string> cells = {job_op_names[r.row.op], size_text(static_cast<double>(r.row.bytes)),
                                      r.row.in_place ? "yes" : "no"};
    for (const char* column : {"arena", "plain", "Open MPI", "MPICH", "Gloo"})
      cells.push_back(gigabytes(bus_bandwidth(r, seconds_of(r, column))));
    for (const char* column : {"arena", "plain"}) cells.push_back(bytes_text(r, column));
    table.row(std::move(cells));
  }
  if (!any) return;
  std::printf("\n");
  table.print();
}

void print_over_mpi(const std::vector<Result>& results) {
  for (const OverMpi& mpi : kOverMpis) {
    Table table({mpi.ours, "size", "ours", mpi.peer, "ours/its", "more", ""});
    bool any = false;
    for (const Result& r : results) {
      const Samples &ours = seconds_of(r, mpi.ours), &its = seconds_of(r, mpi.peer);
      if (ours.empty() || its.empty()) continue;
      any = true;
      const double more = ours.median() - its.median();
      table.row({job_op_names[r.row.op], size_text(static_cast<double>(r.row.bytes)), text_of(ours),
                 text_of(its), times(paired_ratio(ours, its)), fixed(more * 1e6, 1) + " us",
                 more > 0.05 * its.median() + 1e-6 ? "over 5 % + 1 us" : ""});
    }
    if (!any) continue;
    std::printf("\n");
    table.print();
  }
}

void print_inside(const std::vector<Result>& results) {
  const auto has = [](const Result& r) { return !seconds_of(r, "engine").empty(); };
  if (std::none_of(results.begin(), results.end(), has)) return;
  std::printf("\n");
  Table table(
      {"arena tensors, in place", "size", "C call", "gang", "engine", "checks of the gang", "of the C ABI"});
  for (const Result& r : results) {
    const Samples &call = seconds_of(r, "arena"), &gang = seconds_of(r, "gang"),
                  &engine = seconds_of(r, "engine");
    if (!has(r)) continue;
    const auto difference = [](double s) { return fixed(s * 1e9, 0) + " ns"; };
    table.row({job_op_names[r.row.op], size_text(static_cast<double>(r.row.bytes)), text_of(call),
               text_of(gang), text_of(engine), difference(gang.median() - engine.median()),
               difference(call.median() - gang.median())});
  }
  table.print();
}

void print(const std::vector<Overlap>& overlaps, const Crowd& crowd) {
  if (overlaps.empty()) return;
  std::printf("\n");
  Table table({"all_reduce begun, as much compute, wait", "size", "compute alone", "all_reduce alone", "both",
               "hidden", "p10..p90"});
  for (const Overlap& o : overlaps)
    table.row({o.side, size_text(static_cast<double>(o.bytes)), text_of(o.compute), text_of(o.collective),
               text_of(o.both), percent(o.hidden.median()),
               percent(o.hidden.p10()) + ".." + percent(o.hidden.p90())});
  table.print();
  if (!crowd.has_free_core())
    std::printf(
        "no free core: %d ranks on %d cores; hidden is only what ranks wait for each other or memory\n",
        crowd.ranks, crowd.cores);
}

nlohmann::json json_of(const Result& r) {
  nlohmann::json j = {{"op", job_op_names[r.row.op]}, {"bytes", r.row.bytes},
                      {"in_place", r.row.in_place},   {"ranks", r.crowd.ranks},
                      {"flag_before", r.flag_before}, {"flag_after", r.flag_after},
                      {"misses", misses(r)}};
  for (const auto& [name, m] : r.columns)
    j["columns"][name] = {{"median", m.seconds.median()}, {"p10", m.seconds.p10()},
                          {"p90", m.seconds.p90()},       {"rounds", m.seconds.values},
                          {"bytes_moved", m.moved},       {"bytes_staged", m.staged}};
  for (const auto& [name, m] : r.columns)
    if (const double bus = bus_bandwidth(r, m.seconds); !std::isnan(bus)) j["columns"][name]["busbw"] = bus;
  return j;
}

nlohmann::json json_of(const Overlap& o, const Crowd& crowd) {
  return {{"side", o.side},        {"ranks", crowd.ranks},        {"free_core", crowd.has_free_core()},
          {"bytes", o.bytes},      {"compute", o.compute.values}, {"collective", o.collective.values},
          {"both", o.both.values}, {"hidden", o.hidden.median()}};
}

}  // namespace gangway::bench
