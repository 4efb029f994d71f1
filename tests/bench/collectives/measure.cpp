#include "collectives/measure.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "common/copy.h"
#include "common/machine.h"
#include "common/report.h"

namespace gangway::bench {
namespace {

constexpr double kPatience = 60;  // seconds for one burst
constexpr size_t kKi = 1 << 10, kMi = 1 << 20;

struct Burst {
  job_op op;
  size_t bytes;
  bool in_place;
  int arena;
  long warmup, calls, work;
};

// Seconds a call of the slowest rank; negative when the side was lost. Bytes go to `to`, where there is one.
double run(Side& side, const Burst& b, Measured* to = nullptr) {
  std::ostringstream line;
  line << "run " << job_op_names[b.op] << ' ' << b.bytes << ' ' << b.in_place << ' ' << b.arena << ' '
       << b.warmup << ' ' << b.calls << ' ' << b.work;
  const auto replies = side.ask(line.str(), kPatience);
  double slowest = replies.empty() ? -1 : 0;
  for (const std::string& reply : replies) {
    double own = 0, moved = 0, staged = 0;
    std::sscanf(reply.c_str(), "%lf %lf %lf", &own, &moved, &staged);
    slowest = std::max(slowest, own);
    if (to == nullptr) continue;
    to->moved = std::max(to->moved, moved);
    to->staged = std::max(to->staged, staged);
  }
  return slowest;
}

// How many calls make a measurement of the wanted length; 0 when the side was lost.
long calls_for(Side& side, Burst b, double wanted_s) {
  b.warmup = 2;
  b.calls = 4;
  double seconds = run(side, b);
  if (seconds >= 0 && seconds < wanted_s / 20) {
    b.calls = 20;
    seconds = run(side, b);
  }
  if (seconds < 0) return 0;
  return std::clamp(static_cast<long>(wanted_s / std::max(seconds, 1e-9)), 2L, 50000L);
}

// Bytes that one rank copies at least, as a copy of so many (half of reads plus writes).
size_t copied_by_a_rank(const Row& row, int ranks) {
  const size_t n = static_cast<size_t>(ranks), s = row.bytes;
  size_t bytes = 0;
  switch (row.op) {
    case JOB_BARRIER:
    case JOB_OVERLAP:
    case JOB_NONE: break;
    case JOB_ALL_TO_ALL:
    case JOB_EXCHANGE:
    case JOB_SEND_RECV:
    case JOB_ALL_REDUCE: bytes = s; break;
    case JOB_ALL_GATHER: bytes = row.in_place ? s / n * (n - 1) : s; break;
    case JOB_REDUCE_SCATTER: bytes = (s + s / n) / 2; break;
    case JOB_BROADCAST: bytes = s / n * (n - 1); break;
  }
  return (bytes + 63) / 64 * 64;
}

// The limit is the best way of copying, by median.
void choose_limit(Result& result) {
  for (const Copy copy : kCopies) {
    const auto found = result.columns.find(name(copy));
    if (found == result.columns.end()) continue;
    Measured& best = result.columns["limit"];
    if (best.seconds.empty() || found->second.seconds.median() < best.seconds.median()) best = found->second;
  }
}

}  // namespace

std::vector<Row> rows_of(const Settings& settings, const Crowd& crowd) {
  const bool crowded = crowd.crowded();
  std::vector<Row> rows = {{JOB_BARRIER, 0, true}};
  for (const size_t bytes : {size_t{8}, 16 * kKi, 256 * kKi, 4 * kMi, 64 * kMi})
    if (!crowded || bytes <= 4 * kMi) rows.push_back({JOB_ALL_REDUCE, bytes, true});
  for (const size_t bytes : {4 * kMi, 64 * kMi}) {
    if (crowded && bytes > 4 * kMi) continue;
    if (!crowded) rows.push_back({JOB_ALL_REDUCE, bytes, false});
    rows.push_back({JOB_ALL_GATHER, bytes, false});
    rows.push_back({JOB_REDUCE_SCATTER, bytes, false});
    rows.push_back({JOB_BROADCAST, bytes, true});
    rows.push_back({JOB_ALL_TO_ALL, bytes, false});
  }
  if (crowd.ranks > 1)
    for (const job_op op : {JOB_EXCHANGE, JOB_SEND_RECV})
      for (const size_t bytes : {size_t{8}, 64 * kKi, 4 * kMi}) rows.push_back({op, bytes, false});
  std::erase_if(rows, [&](const Row& row) {
    return std::string(job_op_names[row.op]).find(settings.only) == std::string::npos;
  });
  // The rows of an operation one after another, so that its table can be printed when they are done.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.op < b.op; });
  return rows;
}

// All columns in turn, round by round; how many calls a burst has is found out first. Short bursts are
// disturbed more easily and have three times as many rounds.
Result measure(const Settings& settings, const Row& row, const Crowd& crowd,
               const std::vector<Column>& columns) {
  Result result{row, crowd, flag_latency(1), 0, {}};
  std::vector<long> calls(columns.size(), 0);
  std::vector<double> burst_s(columns.size(), 0);
  const int rounds = settings.rounds * (row.bytes <= 4 * kMi ? 3 : 1);
  for (int round = 0; round < rounds && !stopped(); ++round) {
    for (size_t i = 0; i < columns.size(); ++i) {
      Side& side = *columns[i].side;
      if (!side.alive() || (round >= settings.rounds && burst_s[i] > 25 * settings.burst_s)) continue;
      const size_t bytes = side.name() == "limit" ? copied_by_a_rank(row, crowd.ranks) : row.bytes;
      Burst b{row.op, bytes, row.in_place, columns[i].arena, 0, 0, 0};
      if (calls[i] == 0) calls[i] = calls_for(side, b, settings.burst_s);
      if (calls[i] == 0) continue;
      b.calls = calls[i];
      b.warmup = std::max(1L, calls[i] / 10);
      Measured& measured = result.columns[columns[i].name];
      const double seconds = run(side, b, &measured);
      if (seconds < 0) continue;
      measured.seconds.add(seconds);
      burst_s[i] = seconds * static_cast<double>(calls[i]);
    }
  }
  result.flag_after = flag_latency(1);
  choose_limit(result);
  return result;
}

std::vector<Overlap> measure_overlap(const Settings& settings, const std::vector<Side*>& sides) {
  std::vector<Overlap> all;
  for (const size_t bytes : {256 * kKi, 4 * kMi, 64 * kMi}) {
    std::vector<std::pair<Side*, Burst>> turns;
    for (Side* side : sides) {
      Burst alone{JOB_OVERLAP, bytes, true, 1, 2, 0, 0};
      const Burst units{JOB_OVERLAP, 0, true, 1, 1, 4, 1000};
      // A difference of three times: each is longer than what one wait for the scheduler adds.
      const long calls = alone.calls = calls_for(*side, alone, 10 * settings.burst_s);
      const double unit_s = run(*side, units) / 1000, collective_s = run(*side, alone);
      if (calls == 0 || unit_s <= 0 || collective_s <= 0) continue;
      const long work = std::max(1L, static_cast<long>(collective_s / unit_s));
      turns.push_back({side, {JOB_OVERLAP, bytes, true, 1, 2, calls, work}});
      all.push_back({side->name(), bytes, {}, {}, {}, {}});
    }
    Overlap* const first = all.data() + all.size() - turns.size();
    for (int round = 0; round < settings.rounds && !stopped(); ++round)
      for (size_t i = 0; i < turns.size(); ++i) {
        const auto& [side, both] = turns[i];
        Burst compute = both, collective = both;
        compute.bytes = 0;
        collective.work = 0;
        const double a = run(*side, compute), b = run(*side, collective), c = run(*side, both);
        if (a < 0 || b < 0 || c < 0) continue;
        first[i].compute.add(a);
        first[i].collective.add(b);
        first[i].both.add(c);
        first[i].hidden.add((a + b - c) / std::min(a, b));
      }
  }
  return all;
}

}  // namespace gangway::bench
