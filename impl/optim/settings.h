// Reads the options of an optimizer from texts, as a configuration file has them.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "optim/optimizer.h"

namespace gangway {

// `settings`: names and values. The names are those of the fields of gw_<kind>_options: lr, weight_decay,
// schedule (by name), warmup_steps, total_steps, decay_steps, last_lr_ratio, ema_decay, loss_scale,
// initial_loss_scale, loss_scale_interval, and the kind's hyperparameters. Options that are not named have
// their defaults. INVALID_ARGUMENT: an unknown name (the text lists all), a value that is not of the option's
// type, or a name twice. Ranges are checked when the optimizer is made.
OptimizerOptions options_from(const OptimizerKind& kind,
                              const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace gangway
