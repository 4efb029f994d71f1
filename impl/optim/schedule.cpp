#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/error.h"

namespace gangway {
namespace {

double linear(double done) { return 1 - done; }
double cosine(double done) { return 0.5 * (1 + std::cos(std::numbers::pi * done)); }

// A schedule. `left` returns the part of the decay that is still to come when the part `done` of the decay's
// steps is over; both are in [0, 1].
struct ScheduleKind {
  const char* name;
  const char* doc;
  double (*left)(double done);  // null: no decay
};

constexpr ScheduleKind kSchedules[] = {
    {"constant", "the full rate", nullptr},
    {"linear", "falls evenly down to last_lr_ratio at total_steps", linear},
    {"cosine", "falls as half a cosine down to last_lr_ratio at total_steps", cosine},
};

const ScheduleKind& row_of(const LrSchedule& schedule) {
  return kSchedules[static_cast<size_t>(schedule.kind)];
}

}  // namespace

int32_t schedule_count() { return static_cast<int32_t>(std::size(kSchedules)); }

void check(const LrSchedule& schedule) {
  const auto kind = static_cast<int32_t>(schedule.kind);
  if (kind < 0 || kind >= schedule_count())
    fail(Code::invalid_argument, "schedule: kind ", kind, " is unknown");
  if (schedule.warmup < 0)
    fail(Code::invalid_argument, "schedule: warmup = ", schedule.warmup, " is negative");
  if (schedule.total < 0) fail(Code::invalid_argument, "schedule: total = ", schedule.total, " is negative");
  if (!(schedule.final_ratio >= 0 && schedule.final_ratio <= 1))
    fail(Code::invalid_argument, "schedule: final_ratio = ", schedule.final_ratio, " is outside [0, 1]");
  if (row_of(schedule).left != nullptr && schedule.total <= schedule.warmup)
    fail(Code::invalid_argument, "schedule: total = ", schedule.total,
         " is not over warmup = ", schedule.warmup, " (the decay needs steps)");
}

double factor(const LrSchedule& schedule, int64_t step) {
  if (step < schedule.warmup) return static_cast<double>(step) / static_cast<double>(schedule.warmup);
  const auto left = row_of(schedule).left;
  if (left == nullptr) return 1;
  if (step >= schedule.total) return schedule.final_ratio;
  const double done = static_cast<double>(std::max<int64_t>(step - schedule.warmup, 0)) /
                      static_cast<double>(schedule.total - schedule.warmup);
  return schedule.final_ratio + (1 - schedule.final_ratio) * left(done);
}

}  // namespace gangway
