// Learning-rate schedules. The table in schedule.cpp has a row for each. capi/optimizers.py generates the C
// constants and the enumerations of the bindings from it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace gangway {

struct LrSchedule {
  enum class Kind : int32_t { constant, linear, cosine };  // indices of rows in the table
  Kind kind = Kind::constant;
  int64_t warmup = 0;      // steps of linear warm-up: step s, counted from 1, has s / warmup of the rate
  int64_t total = 0;       // steps until the decay ends; a schedule that decays needs total > warmup
  double final_ratio = 0;  // the part of the rate that remains from step `total` on
};

int32_t schedule_count();

// INVALID_ARGUMENT: an unknown kind, a negative count, total <= warmup in a schedule that decays, or a ratio
// outside [0, 1].
void check(const LrSchedule& schedule);

// Returns the factor of the base rate at step `step`, counted from 1.
double factor(const LrSchedule& schedule, int64_t step);

}  // namespace gangway
