// Learning-rate schedules. The table in schedule.cpp has a row for each. capi/optimizers.py generates the C
// constants and the enumerations of the bindings from it.
//
// Steps are counted from 1. The warm-up is linear: step s has s / warmup of the rate. A decay covers `decay`
// steps and reaches `final_ratio` behind the last of `total` steps, so that no step of a run of `total` steps
// has the final rate already, as in PyTorch and Hugging Face transformers.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace gangway {

struct LrSchedule {
  enum class Kind : int32_t { constant, linear, cosine, wsd, wsd_sqrt, inverse_sqrt };  // rows of the table
  Kind kind = Kind::constant;
  int64_t warmup = 0;      // steps of the warm-up
  int64_t total = 0;       // steps until the decay ends; a schedule that decays needs total > warmup
  double final_ratio = 0;  // the part of the rate that remains after `total` steps
  // Steps of the decay. 0: all steps after the warm-up; for wsd and wsd_sqrt a tenth of `total`.
  int64_t decay = 0;
};

int32_t schedule_count();
const char* schedule_name(LrSchedule::Kind kind);  // as in the table

// INVALID_ARGUMENT: an unknown kind, a negative count, total <= warmup in a schedule that decays, a decay
// that does not fit behind the warm-up, an inverse_sqrt without a warm-up, or a ratio outside [0, 1].
void check(const LrSchedule& schedule);

// Returns the factor of the base rate at step `step`, counted from 1.
double factor(const LrSchedule& schedule, int64_t step);

}  // namespace gangway
