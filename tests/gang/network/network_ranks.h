// Ranks as processes of one host on the engine between hosts, and how they tell the test what they saw.
#pragma once

#include <chrono>

#include "gang/processes.h"
#include "gang/sum_of.h"
#include "gang/thread_ranks.h"

namespace gangway::test {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Deadline::Clock::now().time_since_epoch())
      .count();
}

inline GangOptions network_options(int rank, int size, const std::shared_ptr<Store>& store) {
  GangOptions options = thread_rank_options();
  options.engine = "network";
  options.rank = rank;
  options.size = size;
  options.store = store;
  return options;
}

inline GangPtr make_gang(int rank, int size, const std::shared_ptr<Store>& store) {
  return Gang::create(network_options(rank, size, store));
}

inline float sum(Gang& gang, float own) {
  std::vector<float> x{own};
  gang.run_now(Channel::user, sum_of(x));
  return x[0];
}

// Runs `call`, which fails, and reports how.
template <typename Call>
void report_failure(Report& report, Gang& gang, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    report.at_ns = now_ns();
    report.code = static_cast<int64_t>(error.code());
    report.peer = error.peer;
    report.say(error.message());
  }
  if (const auto error = gang.error()) report.gang_code = static_cast<int64_t>(error->code());
}

inline Code code_of(Report& report) { return static_cast<Code>(report.code.load()); }

template <typename Body>
void run_processes(int size, Body&& body) {
  Processes ranks(size, [&](int rank, const std::shared_ptr<Store>& store, Report&) {
    const GangPtr root = make_gang(rank, size, store);
    EXPECT_STREQ(root->engine_name(), "network");
    body(*root);
    root->shutdown(60'000);
  });
  ranks.expect_all_well();
}

}  // namespace gangway::test
