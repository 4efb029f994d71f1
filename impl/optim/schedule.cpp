#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace gangway {

void check(const LrSchedule& schedule) {
  if (schedule.warmup < 0)
    fail(Code::invalid_argument, "schedule: warmup = ", schedule.warmup, " is negative");
  if (schedule.total < 0) fail(Code::invalid_argument, "schedule: total = ", schedule.total, " is negative");
  if (!(schedule.final_ratio >= 0 && schedule.final_ratio <= 1))
    fail(Code::invalid_argument, "schedule: final_ratio = ", schedule.final_ratio, " is outside [0, 1]");
  switch (schedule.kind) {
    case LrSchedule::Kind::constant: return;
    case LrSchedule::Kind::linear:
    case LrSchedule::Kind::cosine:
      if (schedule.total <= schedule.warmup)
        fail(Code::invalid_argument, "schedule: total = ", schedule.total,
             " is not over warmup = ", schedule.warmup, " (the decay needs steps)");
      return;
  }
  fail(Code::invalid_argument, "schedule: kind ", static_cast<int32_t>(schedule.kind), " is unknown");
}

double factor(const LrSchedule& schedule, int64_t step) {
  if (step < schedule.warmup) return static_cast<double>(step) / static_cast<double>(schedule.warmup);
  if (schedule.kind == LrSchedule::Kind::constant) return 1;
  if (step >= schedule.total) return schedule.final_ratio;
  const double done = static_cast<double>(std::max<int64_t>(step - schedule.warmup, 0)) /
                      static_cast<double>(schedule.total - schedule.warmup);
  const double left =
      schedule.kind == LrSchedule::Kind::linear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return schedule.final_ratio + (1 - schedule.final_ratio) * left;
}

}  // namespace gangway
