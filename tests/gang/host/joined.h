// A rank that is a process with a bare host engine, and how it tells the test what it saw.
#pragma once

#include <time.h>

#include <memory>
#include <vector>

#include "gang/host/threads.h"
#include "gang/processes.h"

namespace gangway::test {

struct Joined {
  std::shared_ptr<Rank> rank = std::make_shared<Rank>(make_device("cpu", DeviceOptions{0, 1}));
  std::shared_ptr<Engine> engine;

  Joined(int r, int size, const std::shared_ptr<Store>& store, EngineOptions options = small_arena()) {
    options.rank = r;
    options.size = size;
    engine = make_engine(engine_row("host"), rank, options, store);
  }
  Stream& stream() { return rank->device().stream(); }
};

// One element, all-reduced in place.
inline void sum(Joined& joined, std::vector<float>& x) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = c.out = x.data();
  c.count = 1;
  now(*joined.engine, c, joined.stream());
}

inline int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// Runs calls until one fails; the failure goes into the report, `has_failed` last.
template <typename Call>
void until_failure(Report& report, Call&& call) {
  try {
    for (;;) call();
  } catch (const Error& error) {
    report.at_ns = now_ns();
    report.code = static_cast<int64_t>(error.code());
    report.peer = error.peer;
    report.say(error.message());
    report.has_failed = 1;
  }
}

// Survivors stay until all have reported what they saw: a rank that has ended would be lost for the others.
inline void stay_until_released(Report& report) {
  while (report.may_end == 0) usleep(500);
}
inline void wait_for_failures(Processes& ranks, const std::vector<int>& survivors) {
  for (const int r : survivors)
    ranks.wait_until(r, [](const Report& report) { return report.has_failed != 0; });
}
inline void release_after_failures(Processes& ranks, const std::vector<int>& survivors) {
  wait_for_failures(ranks, survivors);
  for (const int r : survivors) ranks.report(r).may_end = 1;
}

}  // namespace gangway::test
