#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/error.h"

namespace gangway {
namespace {

// The part of the decay that is still to come when the part `done` of its steps is over; both are in [0, 1].
double linear(double done) { return 1 - done; }
double cosine(double done) { return 0.5 * (1 + std::cos(std::numbers::pi * done)); }
double one_minus_sqrt(double done) { return 1 - std::sqrt(done); }

// The factors after the warm-up, when `over` steps have been taken.
double full(const LrSchedule&, double) { return 1; }
template <double (*left)(double), int part>
double decayed(const LrSchedule& schedule, double over);
double inverse_sqrt(const LrSchedule& schedule, double over) {
  const double warmup = static_cast<double>(schedule.warmup);
  return over <= warmup ? 1 : std::max(schedule.final_ratio, std::sqrt(warmup / over));
}

// A schedule. `part` is the part of total_steps that the decay covers unless decay_steps says otherwise: 1
// for all steps after the warm-up, 10 for a tenth of total_steps, 0 if there is no decay with an end.
struct ScheduleKind {
  const char* name;
  const char* doc;
  int part;
  double (*factor)(const LrSchedule& schedule, double over);
};

constexpr ScheduleKind kSchedules[] = {
    {"constant", "the full rate", 0, full},
    {"linear", "the full rate, then an even fall to last_lr_ratio in the last decay_steps of total_steps", 1,
     decayed<linear, 1>},
    {"cosine", "as linear, the fall being half a cosine", 1, decayed<cosine, 1>},
    {"wsd", "warm-up, stable, decay: as linear, but decay_steps is a tenth of total_steps unless it is given",
     10, decayed<linear, 10>},
    {"wsd_sqrt", "as wsd, the fall being 1 - sqrt", 10, decayed<one_minus_sqrt, 10>},
    {"inverse_sqrt",
     "the root of warmup_steps over the steps taken, not below last_lr_ratio; needs a warm-up", 0,
     inverse_sqrt},
};

int64_t decay_of(const LrSchedule& schedule, int part) {
  if (schedule.decay > 0) return schedule.decay;
  if (part == 1) return schedule.total - schedule.warmup;
  return std::max<int64_t>(schedule.total / part, 1);
}

template <double (*left)(double), int part>
double decayed(const LrSchedule& schedule, double over) {
  const double decay = static_cast<double>(decay_of(schedule, part));
  const double done = std::clamp((over - static_cast<double>(schedule.total) + decay) / decay, 0.0, 1.0);
  return schedule.final_ratio + (1 - schedule.final_ratio) * left(done);
}

const ScheduleKind& row_of(const LrSchedule& schedule) {
  return kSchedules[static_cast<size_t>(schedule.kind)];
}

void check_not_negative(const char* field, int64_t steps) {
  if (steps < 0) fail(Code::invalid_argument, "schedule: ", field, " = ", steps, " is negative");
}

}  // namespace

const char* schedule_name(LrSchedule::Kind kind) { return kSchedules[static_cast<size_t>(kind)].name; }

int32_t schedule_count() { return static_cast<int32_t>(std::size(kSchedules)); }

void check(const LrSchedule& schedule) {
  const auto kind = static_cast<int32_t>(schedule.kind);
  if (kind < 0 || kind >= schedule_count())
    fail(Code::invalid_argument, "schedule: kind ", kind, " is unknown");
  check_not_negative("warmup_steps", schedule.warmup);
  check_not_negative("total_steps", schedule.total);
  check_not_negative("decay_steps", schedule.decay);
  if (!(schedule.final_ratio >= 0 && schedule.final_ratio <= 1))
    fail(Code::invalid_argument, "schedule: last_lr_ratio = ", schedule.final_ratio, " is outside [0, 1]");
  const ScheduleKind& row = row_of(schedule);
  if (schedule.kind == LrSchedule::Kind::inverse_sqrt && schedule.warmup == 0)
    fail(Code::invalid_argument, "schedule: warmup_steps = 0, but inverse_sqrt falls from their end on");
  if (row.part == 0) return;
  if (schedule.total <= schedule.warmup)
    fail(Code::invalid_argument, "schedule: total_steps = ", schedule.total,
         " is not over warmup_steps = ", schedule.warmup, " (the decay needs steps)");
  if (const int64_t decay = decay_of(schedule, row.part); decay > schedule.total - schedule.warmup)
    fail(Code::invalid_argument, "schedule: decay_steps = ", decay, " is over ",
         schedule.total - schedule.warmup, ", the steps that warmup_steps = ", schedule.warmup,
         " leaves of total_steps = ", schedule.total);
}

double factor(const LrSchedule& schedule, int64_t step) {
  if (step < schedule.warmup) return static_cast<double>(step) / static_cast<double>(schedule.warmup);
  return row_of(schedule).factor(schedule, static_cast<double>(step - 1));
}

}  // namespace gangway
