// Ranks as threads for tests: run_ranks(4, [](gangway::Gang& root) { ... }) runs the body once per rank. The
// first failure in time is thrown again in the test's thread; it aborts the root gang, so that no peer hangs
// in it; a peer in another gang ends by that gang's deadline. An ASSERT that fails aborts too.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gang/gang.h"
#include "support/test_device.h"

namespace gangway::test {

inline GangOptions thread_rank_options() {
  GangOptions options;
  options.device = test_device();
  options.threads = 1;
  options.timeout_ms = 60'000;
  options.arena_bytes = uint64_t{256} << 20;
  return options;
}

template <typename Body>
void run_ranks(int count, Body&& body, const GangOptions& options = thread_rank_options()) {
  std::vector<std::shared_ptr<Gang>> roots = Gang::create_threads(count, options);
  std::latch done(count);  // a thread that ends early would count as a lost rank
  std::mutex mutex;
  std::exception_ptr first;
  const auto stop = [&](Gang& root, std::exception_ptr failure, const std::string& reason) {
    const std::lock_guard lock(mutex);
    if (first == nullptr) first = failure;
    root.abort(Error(Code::aborted, reason));
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      std::shared_ptr<Gang> root = std::move(roots[static_cast<size_t>(r)]);
      try {
        body(*root);
        if (testing::Test::HasFatalFailure())
          root->abort(Error(Code::aborted, "a fatal failure ended a rank's body"));
      } catch (const std::exception& e) {
        stop(*root, std::current_exception(), text("rank ", r, " failed: ", e.what()));
      }
      done.arrive_and_wait();
    });
  for (std::thread& t : threads) t.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace gangway::test
