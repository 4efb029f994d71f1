// Learning-rate schedules: pure functions of the step. The table in schedule.cpp has a row for each; the
// constants of C and the enumerations of the bindings follow from it (capi/optimizers.py). Value type.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace gangway {

struct LrSchedule {
  enum class Kind : int32_t { constant, linear, cosine };  // places in the table
  Kind kind = Kind::constant;
  int64_t warmup = 0;      // steps from 0 up to the full rate, linear: step s (from 1) has s / warmup of it
  int64_t total = 0;       // steps until the end of the decay; a schedule that decays needs total > warmup
  double final_ratio = 0;  // of the rate, from `total` on
};

int32_t schedule_count();

// INVALID_ARGUMENT: an unknown kind, negative counts, total <= warmup for a decaying one, a ratio outside
// [0, 1].
void check(const LrSchedule& schedule);

// Factor of the base rate at step `step`, counted from 1.
double factor(const LrSchedule& schedule, int64_t step);

}  // namespace gangway
