#include "optim/loss_scale.h"

#include <algorithm>

#include "base/error.h"

namespace gangway {
namespace {

// Within these bounds f32 holds the scale and its reciprocal to full precision. Outside, gradients would
// silently become 0.
void check_number(const char* kind, const char* what, double value) {
  if (!(value >= 0x1p-126 && value <= 0x1p126))
    fail(Code::invalid_argument, kind, ": ", what, " = ", value,
         " is outside [2^-126, 2^126], what f32 can multiply and divide by");
}

void check_bounds(const char* kind, const char* what, double value) {
  if (!(value >= LossScale::kLeast && value <= LossScale::kMost))
    fail(Code::invalid_argument, kind, ": ", what, " = ", value,
         " is outside [1, 2^24], the bounds of a dynamic loss scale");
}

}  // namespace

LossScale::LossScale(const char* kind, const LossScaleOptions& options, bool computes_in_f16)
    : kind_(kind),
      dynamic_(options.fixed == 0 && computes_in_f16),
      value_(options.fixed != 0 ? options.fixed
             : dynamic_         ? options.initial
                                : 1),
      interval_(options.interval) {
  if (options.fixed != 0) check_number(kind, "loss_scale", options.fixed);
  check_bounds(kind, "initial_loss_scale", options.initial);
  if (options.interval < 1)
    fail(Code::invalid_argument, kind, ": loss_scale_interval = ", options.interval, " is below 1");
}

void LossScale::set(double value) {
  check_number(kind_, "loss scale", value);
  if (dynamic_) check_bounds(kind_, "loss scale", value);
  value_ = value;
  finite_steps_ = 0;
}

void LossScale::restore(double value, int64_t finite_steps) {
  if (finite_steps < 0) fail(Code::invalid_argument, kind_, ": finite steps = ", finite_steps, " is below 0");
  set(value);
  finite_steps_ = finite_steps;
}

void LossScale::follow(bool finite) {
  if (!dynamic_) return;
  if (!finite) {
    value_ = std::max(value_ / 2, kLeast);
    finite_steps_ = 0;
  } else if (++finite_steps_ >= interval_) {
    value_ = std::min(value_ * 2, kMost);
    finite_steps_ = 0;
  }
}

void LossScale::add_to_signature(CallSignature& signature) const {
  signature.add("dynamic_loss_scale", dynamic_);
  signature.add("loss_scale", value_);
  if (!dynamic_) return;
  signature.add("loss_scale_interval", interval_);
  signature.add("finite_steps", finite_steps_);
}

}  // namespace gangway
