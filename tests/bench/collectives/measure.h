// What is measured: rows of operations and sizes, each asked of all sides in turn, round by round.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/job.h"
#include "common/side.h"
#include "common/stats.h"

namespace gangway::bench {

struct Settings {
  std::vector<int> ranks = {2, 4};
  int rounds = 7;
  double burst_s = 0.004;  // aim of one measurement: shorter than a time slice of the scheduler
  bool peers = false;
  std::string json, only;
};

// How many ranks on how many cores.
struct Crowd {
  int ranks, cores;
  bool crowded() const { return ranks > cores; }
  bool has_free_core() const { return ranks < cores; }
};

struct Row {
  job_op op;
  size_t bytes;
  bool in_place;
};
std::vector<Row> rows_of(const Settings& settings, const Crowd& crowd);

// How one side is asked about a row. `arena` is the job's field of that name.
struct Column {
  std::string name;
  Side* side;
  int arena;
};

struct Measured {
  Samples seconds;               // a call, slowest rank
  double moved = 0, staged = 0;  // bytes a call, most of any rank
};

struct Result {
  Row row;
  Crowd crowd;
  double flag_before, flag_after;
  std::map<std::string, Measured> columns;
};
Result measure(const Settings& settings, const Row& row, const Crowd& crowd,
               const std::vector<Column>& columns);

// An asynchronous all_reduce with about as much compute on the same ranks.
struct Overlap {
  std::string side;
  size_t bytes;
  Samples compute, collective, both;  // seconds a call, slowest rank
  Samples hidden;                     // share of the shorter of the two that both together do not take
};
std::vector<Overlap> measure_overlap(const Settings& settings, const std::vector<Side*>& sides);

}  // namespace gangway::bench
