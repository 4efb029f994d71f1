// Learning-rate schedules: pure functions of the step. Value type. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace gangway {

struct LrSchedule {
  enum class Kind : int32_t { constant = 0, linear = 1, cosine = 2 };
  Kind kind = Kind::constant;
  int64_t warmup = 0;      // steps from 0 up to the full rate, linear: step s (from 1) has s / warmup of it
  int64_t total = 0;       // steps until the end of the decay; linear and cosine need total > warmup
  double final_ratio = 0;  // of the rate, from `total` on
};

// INVALID_ARGUMENT: negative counts, total <= warmup for a decaying kind, a ratio outside [0, 1].
void check(const LrSchedule& schedule);

// Factor of the base rate at step `step`, counted from 1.
double factor(const LrSchedule& schedule, int64_t step);

}  // namespace gangway
