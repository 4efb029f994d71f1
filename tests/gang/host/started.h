// A rank of its own, and what shows that the engine which it has started works.
#pragma once

#include "gang/host/threads.h"

namespace gangway::test {

inline std::shared_ptr<Rank> new_rank() {
  return std::make_shared<Rank>(make_device("cpu", DeviceOptions{0, 1}));
}

// Sums 1 over the ranks, and ends in order. Throws: in a child process a failed expectation is not seen.
inline void expect_to_work(const std::shared_ptr<Rank>& rank, Engine& engine, int size) {
  float x = 1;
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = c.out = &x;
  c.count = 1;
  now(engine, c, rank->device().stream());
  if (x != static_cast<float>(size)) fail(Code::internal, "the sum is ", x);
  engine.shutdown(Deadline::after_ms(60'000));
}

}  // namespace gangway::test
