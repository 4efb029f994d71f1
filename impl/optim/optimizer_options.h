// The options that every optimizer has, and the rules for parameters by name.
//
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

#include "optim/kind.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"

namespace gangway {

// A rule for the parameters whose whole name matches. The last matching rule applies alone; rules are not
// merged. A parameter without a match has lr_scale 1 and the optimizer's weight decay, or none if it has
// one dim. A pattern that matches no parameter is refused.
struct OptimizerRule {
  std::string pattern;
  double lr_scale = 1;
  double weight_decay = -1;  // -1: as without a rule; a number also holds for 1-d parameters
  // The optimizer does not step the parameter. This does not free the parameter's gradient buffer; for that,
  // set the parameter itself untrainable before it is materialized.
  bool frozen = false;
  // For muon alone, which steps some parameters by AdamW. 1: these too; 0: not these; -1: as without a rule.
  int adamw = -1;
};

struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0;
  LrSchedule schedule;
  std::vector<OptimizerRule> rules;
  LossScaleOptions loss_scale;
  uint64_t seed = 0;            // of the model; with it states are rounded (ops/random_rounding.h)
  double ema_decay = 0;         // of an average of the parameters, the state "ema"; 0: none
  HyperValues hyperparameters;  // of the kind's table; an absent one has its default
};

}  // namespace gangway
