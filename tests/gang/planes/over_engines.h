// Ranks as threads whose gangs stand on engines of the test's own, each made from a threads engine.
#pragma once

#include "gang/host/threads.h"
#include "gang/thread_ranks.h"

namespace gangway::test {

// make(rank, threads engine) on each rank's thread gives the engine of its root gang; then body(root).
template <typename Make, typename Body>
void run_over_engines(int size, Make&& make, Body&& body,
                      const GangOptions& options = thread_rank_options()) {
  EngineOptions o = small_arena();
  o.timeout_ms = options.timeout_ms;
  ThreadRanks ranks(size, o);
  std::latch done(size);  // a thread that ends early would count as a lost rank
  ranks.run([&](int r, Engine&) {
    struct Arrive {
      std::latch& done;
      ~Arrive() { done.arrive_and_wait(); }
    } const arrive{done};
    const size_t at = static_cast<size_t>(r);
    const GangPtr root = Gang::over(ranks.ranks[at], make(ranks.ranks[at], ranks.engines[at]), options);
    try {
      body(*root);
    } catch (const std::exception& e) {
      root->abort(Error(Code::aborted, text("rank ", r, " failed: ", e.what())));
      throw;
    }
  });
}

}  // namespace gangway::test
