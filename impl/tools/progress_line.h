// A line on the terminal that says how much of a long work is done. It writes to standard error, and nothing
// if that is no terminal.
//
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace gangway {

class ProgressLine {
 public:
  ProgressLine(std::string what, uint64_t total);
  ~ProgressLine();  // wipes the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void add(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const uint64_t total_;
  const bool shown_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  uint64_t done_ = 0;
  Clock::time_point next_ = start_;  // when the line may be written again
};

std::string size_text(uint64_t bytes);  // "1.5 GiB"

}  // namespace gangway
