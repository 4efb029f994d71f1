// The loss scale: a factor of the loss before backward, so that gradients in f16 neither underflow nor
// overflow. The rule is that of PyTorch's GradScaler: a step whose gradients are not finite is skipped
// and halves the scale; `interval` finite steps in a row double it. A power of two changes no bits of
// gradients that stay in range.
//
// Thread rule: values; local. All ranks pass the same verdicts to follow(), so their scales stay equal.
#pragma once

#include <cstdint>

#include "base/call_signature.h"

namespace gangway {

struct LossScaleOptions {
  double fixed = 0;  // 0: dynamic where something computes in f16, else none
  double initial = 65536;
  int64_t interval = 2000;  // steps
};

class LossScale {
 public:
  static constexpr double kLeast = 1, kMost = 16777216;  // bounds of a dynamic scale

  // INVALID_ARGUMENT, as "<kind>: <option> = ...".
  LossScale(const char* kind, const LossScaleOptions& options, bool computes_in_f16);

  double value() const { return value_; }  // 1: no scale
  bool dynamic() const { return dynamic_; }
  bool used() const { return dynamic_ || value_ != 1; }
  // Starts to count finite steps at 0 again. INVALID_ARGUMENT: not in 2^-126 to 2^126, or not in a
  // dynamic scale's bounds.
  void set(double value);
  int64_t finite_steps() const {
    return finite_steps_;
  }  // in a row, since the last change of a dynamic scale
  // Continues from a checkpoint: sets both. INVALID_ARGUMENT as in set, or finite_steps is below 0.
  void restore(double value, int64_t finite_steps);
  void follow(bool finite);  // after a step, also after a skipped one
  void add_to_signature(CallSignature& signature) const;

 private:
  const char* kind_;
  bool dynamic_;
  double value_;
  int64_t interval_, finite_steps_ = 0;  // finite steps in a row
};

}  // namespace gangway
