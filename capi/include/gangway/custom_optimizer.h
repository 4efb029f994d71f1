/* Optimizers and schedules of the caller's own: functions that the library calls. */
#ifndef GANGWAY_CUSTOM_OPTIMIZER_H
#define GANGWAY_CUSTOM_OPTIMIZER_H

#include <gangway/optimizers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a step sees of one parameter: this rank's rows. It is valid during the call, and the library owns the
 * views. The callback writes value and states in place; the gradient is unscaled and clipped, and may be
 * overwritten. On a device that is not a CPU (device_type of the views) data are addresses of that device:
 * the callback puts its work on `stream` and returns without waiting for it. */
typedef struct gw_optimizer_call {
  size_t struct_size;
  const gw_ext *next;
  const char *name;     /* Of the parameter. */
  const gw_view *value; /* f32, or f64. */
  const gw_view *gradient;
  const gw_view *states; /* In the order of the options; f32, or f64 where the value is. */
  int32_t state_count;
  int32_t reserved;
  double lr; /* With schedule and rules. */
  double weight_decay;
  int64_t step; /* Counts from 1. */
  void *stream; /* The stream for the callback's work; null on a CPU. */
} gw_optimizer_call;

typedef gw_status (*gw_optimizer_step_fn)(void *user, const gw_optimizer_call *call);

/* The fields from lr on are those of every optimizer (optimizers.h). */
typedef struct gw_custom_optimizer_options {
  size_t struct_size;
  const gw_ext *next;
  const char *name; /* Names the optimizer in errors. Default null: "custom". */
  /* Names of what the optimizer keeps for each parameter: tensors of the parameter's shape, zero at first.
   * gw_parameter_state takes them. */
  const char *const *states;
  size_t state_count;
  /* Required. Steps one parameter. Called in each step for each parameter that has rows on this rank and is
   * not frozen, on the thread of the training step. A status other than GW_OK fails that step on all ranks
   * and breaks the gangs; a model of one rank stays usable. */
  gw_optimizer_step_fn step;
  void *user;
  gw_free_fn free_user;
  double lr;           /* Default 1e-3, in [0, inf). */
  double weight_decay; /* Default 0, in [0, inf). */
  gw_schedule schedule;
  int32_t reserved;
  double ema_decay; /* Default 0: no average. */
  int64_t warmup_steps;
  int64_t total_steps;
  double last_lr_ratio;
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  double loss_scale;
  double initial_loss_scale;   /* Default 65536. */
  int64_t loss_scale_interval; /* Default 2000. */
} gw_custom_optimizer_options;
GW_API void gw_custom_optimizer_options_init(gw_custom_optimizer_options *options, size_t size);
/* Local. Makes an optimizer of the caller's step, which keeps the model alive. free_user runs once, also when
 * this call fails. The caller releases *out_optimizer. INVALID_STATE: before gw_parallelize or
 * gw_module_materialize. INVALID_ARGUMENT names the option and its range. */
GW_API gw_status gw_custom_optimizer_create(gw_module *model, const gw_custom_optimizer_options *options,
                                            gw_optimizer **out_optimizer);

/* Writes what the base learning rate is multiplied by at a step, which counts from 1. */
typedef gw_status (*gw_schedule_fn)(void *user, int64_t step, double *out_factor);
/* Local. Takes the callback in the place of the optimizer's schedule and warm-up; every rank must give equal
 * factors, else its next step is a MISMATCH. The library may ask for a step more than once, on the thread
 * that uses the optimizer. A failure, or a factor that is not a finite number >= 0, refuses the step on all
 * ranks. `release` runs once, also when this call fails. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_set_schedule(gw_optimizer *optimizer, gw_schedule_fn factor, void *user,
                                           gw_free_fn release);

#ifdef __cplusplus
}
#endif
#endif
