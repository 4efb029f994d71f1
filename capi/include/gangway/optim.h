/* Optimizers over local shards, learning-rate schedules, rules by name pattern, loss scales, clipping. */
#ifndef GANGWAY_OPTIM_H
#define GANGWAY_OPTIM_H

#include <gangway/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t gw_schedule;
enum gw_schedule_value { GW_SCHEDULE_INVALID = -1, GW_CONSTANT = 0, GW_LINEAR = 1, GW_COSINE = 2 };

/* Applies to parameters whose whole name matches `pattern` ('*' stays within one dot, "**" matches everything); the
 * last match wins. Parameters without a match get the optimizer's weight decay, except 1-d parameters, which get
 * none. */
typedef struct gw_optimizer_rule {
  size_t struct_size;
  const gw_ext *next;
  const char *pattern;
  double lr_scale;     /* 1 */
  double weight_decay; /* -1: as without a rule */
  int32_t frozen;      /* 1: not stepped */
  int32_t reserved;
} gw_optimizer_rule;
/* Local. Sets up a gw_optimizer_rule: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_optimizer_rule_init(gw_optimizer_rule *rule, size_t size);

/* Loss scale: gradients in f16 are lost where they are too small and infinite where they are too large, so gw_train_step
 * starts its backward from scale / N and divides gradients by the scale again where it steps them. What it tells (loss,
 * grad_norm) and compares (max_grad_norm) is unscaled; gw_call.loss_scale is scaled. A dynamic scale follows
 * PyTorch's torch.amp.GradScaler with growth_factor 2, backoff_factor 0.5 and growth_interval loss_scale_interval: a loss
 * or gradient that is not finite, on any rank, skips the step and halves the scale; so many finite steps in a row double
 * it. It stays between 1 and 2^24, and equal on all ranks of the optimizer's model. Where several optimizers step the gradients of one loss (stages that the caller computes, several
 * shard groups), give each the same fixed loss_scale. A scale that is a power of two changes no bits of gradients
 * that neither underflow nor overflow. Of gw_step_options, norm_type is at most 32 (or infinity) beside a scale, and
 * allow_non_finite 0 beside a dynamic one; else INVALID_ARGUMENT. */
typedef struct gw_adamw_options {
  size_t struct_size;
  const gw_ext *next;
  double lr;           /* 1e-3 */
  double beta1;        /* 0.9 */
  double beta2;        /* 0.999 */
  double eps;          /* 1e-8 */
  double weight_decay; /* 0 */
  gw_schedule schedule;
  gw_dtype moment_dtype; /* GW_F32 or GW_BF16; f64 parameters have f64 moments */
  int64_t warmup_steps;
  int64_t total_steps;  /* linear and cosine: where the decay ends */
  double last_lr_ratio; /* of lr, from total_steps on */
  const gw_optimizer_rule *rules;
  size_t rule_count;
  double loss_scale; /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none */
  double initial_loss_scale;   /* 65536; of a dynamic one; 1 to 2^24 */
  int64_t loss_scale_interval; /* 2000; finite steps in a row that double a dynamic one; at least 1 */
} gw_adamw_options;
/* Local. Sets up a gw_adamw_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_adamw_options_init(gw_adamw_options *options, size_t size);

typedef struct gw_sgd_options {
  size_t struct_size;
  const gw_ext *next;
  double lr;           /* 1e-3 */
  double momentum;     /* 0 */
  double weight_decay; /* 0 */
  int32_t nesterov;
  gw_schedule schedule;
  int64_t warmup_steps;
  int64_t total_steps;
  double last_lr_ratio;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  double loss_scale; /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none */
  double initial_loss_scale;   /* 65536; of a dynamic one; 1 to 2^24 */
  int64_t loss_scale_interval; /* 2000; finite steps in a row that double a dynamic one; at least 1 */
} gw_sgd_options;
/* Local. Sets up a gw_sgd_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_sgd_options_init(gw_sgd_options *options, size_t size);

/* Local. The optimizer keeps the model alive; the caller releases *out_optimizer. INVALID_STATE before
 * gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its range. */
GW_API gw_status gw_adamw_create(gw_module *model, const gw_adamw_options *options,
                                 gw_optimizer **out_optimizer);
/* Local. As gw_adamw_create. The caller releases *out_optimizer. INVALID_STATE, INVALID_ARGUMENT. */
GW_API gw_status gw_sgd_create(gw_module *model, const gw_sgd_options *options, gw_optimizer **out_optimizer);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_optimizer *gw_optimizer_retain(gw_optimizer *optimizer);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_optimizer_release(gw_optimizer *optimizer);

/* Local. The number of steps taken. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_steps(const gw_optimizer *optimizer, int64_t *out_steps);
/* Local. The learning rate of the next step, before rules. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_lr(const gw_optimizer *optimizer, double *out_lr);
/* Local. Sets the base learning rate; the next step of ranks with different ones is a MISMATCH. INVALID_ARGUMENT: not
 * finite, or below 0. */
GW_API gw_status gw_optimizer_set_lr(gw_optimizer *optimizer, double lr);

/* Local. The factor of the loss in the next step; 1: none. A loop of your own starts its backward from it over N
 * (gw_frame_options.loss_scale), and gw_optimizer_step divides by it. One thread at a time. INVALID_ARGUMENT: null. */
GW_API gw_status gw_optimizer_loss_scale(const gw_optimizer *optimizer, double *out_scale);
/* Local. Sets it, fixed or dynamic as it is (none: fixed), between a step and the backward of the next; a dynamic one
 * counts finite steps anew. The next step of ranks with different ones is a MISMATCH. One thread at a time.
 * INVALID_ARGUMENT: outside 2^-126 to 2^126; a dynamic one outside 1 to 2^24. */
GW_API gw_status gw_optimizer_set_loss_scale(gw_optimizer *optimizer, double scale);

/* Collective. Scales the local gradients by min(1, max_norm / (norm + 1e-6)); *out_norm is the norm before that: (sum
 * of |g|^p)^(1/p) over all gradients of the mesh. `p`: over 0 and at most 64, or infinity for the largest
 * element. INVALID_ARGUMENT: max_norm or p outside its range; INVALID_STATE: a model without memory;
 * MISMATCH: ranks have different ones. The gradients are as they are: with a loss scale max_grad_norm of
 * gw_step_options clips unscaled ones. */
GW_API gw_status gw_clip_grad_norm(gw_module *model, double max_norm, double p, void *stream,
                                   double *out_norm);
/* Local. Sets the local gradients to zero. INVALID_STATE: the model has no memory yet. */
GW_API gw_status gw_zero_grad(gw_module *model, void *stream);

#ifdef __cplusplus
}
#endif
#endif
