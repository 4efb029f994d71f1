// The options of every engine: its rank and size, and the rank's limits.
//
// Thread rule: values of one thread.
#pragma once

#include <cstdint>
#include <string>

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
};

}  // namespace gangway
