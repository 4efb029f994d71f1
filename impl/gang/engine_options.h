// The options of every engine: its rank and size, and the rank's limits.
//
// Thread rule: values of one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gangway {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  int64_t timeout_ms = 15 * 60 * 1000;
  int64_t liveness_ms = 0;
  uint64_t arena_bytes = 0;   // 0: the default reserve
  uint64_t memory_limit = 0;  // 0: the default limit
  bool high_priority = false;
  std::string label = "gang";  // names the gang in errors
  // members[r] is rank r's rank in the root gang. Empty: the same numbers.
  std::vector<int> members;
};

// Returns the options of an engine over `ranks`, which are ranks of the engine with the options `own`.
EngineOptions child_options(const EngineOptions& own, std::span<const int> ranks, int rank,
                            const std::string& label);
// Names a rank in a text: "rank 1", or "rank 1 (global rank 3)" in a gang with `members`.
std::string rank_text(const EngineOptions& gang, int rank);

}  // namespace gangway
