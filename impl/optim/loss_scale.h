// What losses are multiplied by before backward, so that gradients in f16 neither underflow nor overflow. The rule is that
// of PyTorch's GradScaler: a step whose gradients are not finite is skipped and halves the scale; `interval` finite steps
// in a row double it. A power of two changes no bits of gradients that stay in range.
//
// Thread rule: values; local. Ranks feed it the same verdicts, so theirs are equal.
#pragma once

#include <cstdint>

#include "base/facts.h"

namespace gangway {

struct LossScaleOptions {
  double fixed = 0;  // 0: dynamic where something computes in f16, else none
  double initial = 65536;
  int64_t interval = 2000;  // steps
};

class LossScale {
 public:
  static constexpr double kLeast = 1, kMost = 16777216;  // of a dynamic one

  // INVALID_ARGUMENT, as "<kind>: <option> = ...".
  LossScale(const char* kind, const LossScaleOptions& options, bool computes_in_f16);

  double value() const { return value_; }  // 1: none
  bool dynamic() const { return dynamic_; }
  bool used() const { return dynamic_ || value_ != 1; }
  // Counts finite steps from 0 again. INVALID_ARGUMENT: outside of 2^-126 to 2^126; a dynamic one outside its bounds.
  void set(double value);
  void follow(bool finite);  // after a step, or after its skip
  void add_facts(Facts& facts) const;

 private:
  const char* kind_;
  bool dynamic_;
  double value_;
  int64_t interval_, finite_steps_ = 0;  // in a row
};

}  // namespace gangway
