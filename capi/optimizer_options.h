// Helpers of the generated optimizers.cpp: they read the options that all optimizers share, and create
// any optimizer.
#pragma once

#include <gangway/optim.h>

#include "module_handle.h"

namespace gangway::capi {

std::vector<OptimizerRule> rules_of(const gw_optimizer_rule* rules, size_t count);
// INVALID_ARGUMENT: a number of no schedule.
LrSchedule::Kind schedule_of(int32_t schedule);
// Returns `standard` if the caller leaves the choice to the library.
inline DType dtype_or(gw_dtype dtype, DType standard) {
  return dtype == GW_DTYPE_NONE ? standard : dtype_of(dtype);
}
// The options of a kind from texts, as gw_optimizer_create has them. INVALID_ARGUMENT names the kind or the
// option.
OptimizerOptions optimizer_options_of(const char* kind, const char* const names[], const char* const values[],
                                      size_t count);
gw_optimizer* create_optimizer(const char* kind, gw_module* model, const OptimizerOptions& options);

template <typename Options>
Options common_defaults(double lr, double weight_decay) {
  const LossScaleOptions scale;
  Options o{};
  o.lr = lr;
  o.weight_decay = weight_decay;
  o.loss_scale = scale.fixed;
  o.initial_loss_scale = scale.initial;
  o.loss_scale_interval = scale.interval;
  return o;
}

template <typename Options>
OptimizerOptions common_of(const Options& o) {
  OptimizerOptions r;
  r.lr = o.lr;
  r.weight_decay = o.weight_decay;
  r.schedule = {schedule_of(o.schedule), o.warmup_steps, o.total_steps, o.last_lr_ratio, o.decay_steps};
  r.ema_decay = o.ema_decay;
  r.rules = rules_of(o.rules, o.rule_count);
  r.loss_scale = {o.loss_scale, o.initial_loss_scale, o.loss_scale_interval};
  return r;
}

// The body of gw_<kind>_create. `own` reads the hyperparameters of this kind.
template <typename Options, typename Own>
gw_status create_optimizer(const char* kind, gw_module* model, const Options* options,
                           void (*init)(Options*, size_t), gw_optimizer** out_optimizer, const Own& own) {
  return guarded([&] {
    gw_optimizer*& result = out(out_optimizer, "out_optimizer");
    const Options o = read_struct(options, init, "options");
    OptimizerOptions r = common_of(o);
    r.hyperparameters = own(o);
    result = create_optimizer(kind, model, r);
  });
}

}  // namespace gangway::capi
