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

// Runs calls until one fails; the time of the failure and its text go into the report, `told` last.
template <typename Call>
void until_failure(Report& report, Call&& call) {
  try {
    for (;;) call();
  } catch (const Error& error) {
    report.number[0] = now_ns();
    report.number[1] = static_cast<int64_t>(error.code());
    report.number[2] = error.peer;
    report.say(error.message());
    report.number[15] = 1;  // told
  }
}

// Survivors stay until all have told what they saw: one that has ended is alive no more for the others.
inline void stay(Report& report) {
  while (report.number[14] == 0) usleep(500);
}
inline void wait_until_told(Processes& ranks, const std::vector<int>& survivors) {
  for (const int r : survivors)
    ranks.wait_until(r, [](const Report& report) { return report.number[15] != 0; });
}
inline void let_go_when_told(Processes& ranks, const std::vector<int>& survivors) {
  wait_until_told(ranks, survivors);
  for (const int r : survivors) ranks.report(r).number[14] = 1;
}

}  // namespace gangway::test
