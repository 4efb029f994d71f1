/* Optimizers over local shards: rules by name pattern, learning rate, loss scale and clipping. optimizers.h
 * creates them.
 *
 * The loss scale: gradients in f16 are lost where they are too small and infinite where they are too large.
 * So gw_train_step starts its backward from scale / N, and divides gradients by the scale again where it
 * steps them. What it reports (loss, grad_norm) and compares (max_grad_norm) is unscaled; gw_call.loss_scale
 * is scaled.
 *
 * A dynamic scale follows PyTorch's torch.amp.GradScaler with growth_factor 2, backoff_factor 0.5 and
 * growth_interval loss_scale_interval. A loss or gradient that is not finite, on any rank, skips the step and
 * halves the scale; so many finite steps in a row double it. The scale stays between 1 and 2^24, and equal on
 * all ranks of the optimizer's model.
 *
 * Where several optimizers step the gradients of one loss (stages that the caller computes, several shard
 * groups), give each the same fixed loss_scale. A scale that is a power of two changes no bits of gradients
 * that neither underflow nor overflow. With a scale, norm_type of gw_step_options is at most 32, or infinity;
 * with a dynamic scale, allow_non_finite is 0. Else a step is INVALID_ARGUMENT. */
#ifndef GANGWAY_OPTIM_H
#define GANGWAY_OPTIM_H

#include <gangway/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rule applies to parameters whose whole name matches `pattern` (module.h), such as "**.bias". The last
 * match wins. Parameters without a match get the optimizer's weight decay, except 1-d parameters, which get
 * none. A pattern that matches no parameter is refused. */
typedef struct gw_optimizer_rule {
  size_t struct_size;
  const gw_ext *next;
  const char *pattern;
  double lr_scale;     /* A factor of the learning rate. Default 1. */
  double weight_decay; /* Default -1: as without a rule. */
  int32_t frozen;      /* 1: the parameter is not stepped. Default 0. */
  /* Of Muon alone. 1: AdamW steps the parameter; 0: Muon does. Default -1: as without a rule. */
  int32_t adamw;
} gw_optimizer_rule;
GW_API void gw_optimizer_rule_init(gw_optimizer_rule *rule, size_t size);

/* Local. Makes an optimizer by the name of its kind, with options as texts: for programs that read them from
 * a file. `names` and `values` have option_count texts each. The names are those of the fields of the kind's
 * options (optimizers.h), such as "lr" and "beta2"; a number is written as in C, a flag as true or false, a
 * schedule by its name ("cosine"), a dtype as f32 or bf16. There are no rules. Options that are not given
 * have their defaults. The caller releases *out_optimizer, which keeps the model alive. INVALID_ARGUMENT: an
 * unknown kind or option (the text lists all), or a value. INVALID_STATE: before gw_parallelize or
 * gw_module_materialize. */
GW_API gw_status gw_optimizer_create(gw_module *model, const char *kind, const char *const names[],
                                     const char *const values[], size_t option_count,
                                     gw_optimizer **out_optimizer);
GW_API gw_optimizer *gw_optimizer_retain(gw_optimizer *optimizer);
GW_API void gw_optimizer_release(gw_optimizer *optimizer);

/* Local. Gives the number of steps taken. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_steps(const gw_optimizer *optimizer, int64_t *out_steps);
/* Local. Gives the learning rate of the next step, before rules. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_lr(const gw_optimizer *optimizer, double *out_lr);
/* Local. Sets the base learning rate. If ranks set different ones, their next step is a MISMATCH.
 * INVALID_ARGUMENT: not finite, or below 0. */
GW_API gw_status gw_optimizer_set_lr(gw_optimizer *optimizer, double lr);

/* Local, one thread at a time. Gives the factor of the loss in the next step; 1 is none. A loop of the
 * caller's own starts its backward from this factor over N (gw_frame_options.loss_scale), and
 * gw_optimizer_step divides by it. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_loss_scale(const gw_optimizer *optimizer, double *out_scale);
/* Local, one thread at a time. Sets the loss scale, between a step and the backward of the next. A fixed
 * scale stays fixed, a dynamic one stays dynamic and counts finite steps anew; where there was none, the new
 * one is fixed. If ranks set different ones, their next step is a MISMATCH. INVALID_ARGUMENT: outside of
 * 2^-126 to 2^126; for a dynamic scale, outside of 1 to 2^24. */
GW_API gw_status gw_optimizer_set_loss_scale(gw_optimizer *optimizer, double scale);

/* Local, one thread at a time. For a caller's own checkpoints. The next step depends on values and states
 * (gw_parameter_state), on the number of steps, the base learning rate, the loss scale, and the number of
 * finite steps in a row that a dynamic scale has counted. gw_checkpoints of checkpoints.h saves all of them.
 *
 * Sets the number of steps taken. INVALID_ARGUMENT: below 0. */
GW_API gw_status gw_optimizer_set_steps(gw_optimizer *optimizer, int64_t steps);
/* Local. Gives the base learning rate, which the schedule multiplies. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_base_lr(const gw_optimizer *optimizer, double *out_lr);
/* Local. Gives the finite steps in a row since a dynamic loss scale changed. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_finite_steps(const gw_optimizer *optimizer, int64_t *out_steps);
/* Local. Sets the loss scale as gw_optimizer_set_loss_scale does, and the finite steps in a row.
 * INVALID_ARGUMENT: as there, or finite_steps is below 0. */
GW_API gw_status gw_optimizer_restore_loss_scale(gw_optimizer *optimizer, double scale, int64_t finite_steps);
/* Collective. With ema_decay, exchanges the values of the parameters and their averages, for an evaluation,
 * generation or a save of the model; a second call swaps back. Until then a step is INVALID_STATE. The state
 * ema of gw_parameter_state is this rank's rows of the average. INVALID_STATE: ema_decay is 0, or the
 * optimizer has not stepped yet. */
GW_API gw_status gw_optimizer_swap_ema(gw_optimizer *optimizer, void *stream);

/* Collective. Scales the local gradients by min(1, max_norm / (norm + 1e-6)). *out_norm is the norm before
 * that, (sum of |g|^p)^(1/p) over all gradients of the mesh. `p` is over 0 and at most 64, or infinity for
 * the largest element. The gradients are taken as they are; with a loss scale, max_grad_norm of
 * gw_step_options clips unscaled ones. INVALID_ARGUMENT: max_norm or p is outside of its range.
 * INVALID_STATE: a model without memory, or a shard group whose full gradients are not reduced. MISMATCH:
 * ranks have different ones. */
GW_API gw_status gw_clip_grad_norm(gw_module *model, double max_norm, double p, void *stream,
                                   double *out_norm);
/* Local. Sets the local gradients to zero, and drops full gradients of shard groups that are not reduced.
 * INVALID_STATE: the model has no memory yet. */
GW_API gw_status gw_zero_grad(gw_module *model, void *stream);

#ifdef __cplusplus
}
#endif
#endif
