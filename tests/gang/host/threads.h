// Ranks as threads over bare host engines, for tests of the engine itself.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gang/registry.h"

namespace gangway::test {

inline EngineOptions small_arena() {
  EngineOptions options;
  options.arena_bytes = uint64_t{1} << 30;
  options.timeout_ms = 60'000;
  return options;
}

// Where rank threads meet outside of any gang, to put in order what no gang orders. A rank that does not come is
// an error of the others, not a hang.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}
  void come() {
    const int round = came_.fetch_add(1) / size_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (came_.load() < (round + 1) * size_) {
      if (std::chrono::steady_clock::now() > end) fail(Code::internal, "a rank did not come to the meeting");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  const int size_;
  std::atomic<int> came_{0};
};

struct ThreadRanks {
  std::vector<std::shared_ptr<Rank>> ranks;
  std::vector<std::shared_ptr<Engine>> engines;

  explicit ThreadRanks(int size, EngineOptions options = small_arena()) {
    for (int r = 0; r < size; ++r)
      ranks.push_back(std::make_shared<Rank>(make_device("cpu", DeviceOptions{0, 1})));
    engines = make_thread_engines(ranks, options);
  }

  // body(rank, engine) on a thread per rank; the first exception is thrown again here.
  template <typename Body>
  void run(Body&& body) {
    std::vector<std::exception_ptr> errors(engines.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < engines.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          body(static_cast<int>(r), *engines[r]);
        } catch (const std::exception& e) {
          errors[r] = std::current_exception();
          engines[r]->abort(Error(Code::aborted, text("rank ", r, " failed: ", e.what())));
        }
      });
    for (std::thread& t : threads) t.join();
    for (const auto& e : errors)
      if (e) std::rethrow_exception(e);
  }
};

inline Collective sum_in_place(float* x, size_t count) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = c.out = x;
  c.count = count;
  return c;
}

// Runs one call and waits for both ends.
inline void now(Engine& engine, const Collective& c, Stream& stream, Channel channel = Channel::user) {
  if (const WorkPtr rest = engine.run_now(channel, {&c, 1}, stream)) rest->wait_input(Deadline::never());
}

}  // namespace gangway::test
