/* Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit. */
/* The optimizers (Adafactor, AdamW, AdamW8bit, Lion, Muon, SGD) and the schedules of their rates. Rules
 * and loss scales: optim.h. */
#ifndef GANGWAY_OPTIMIZERS_H
#define GANGWAY_OPTIMIZERS_H

#include <gangway/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What follows the warm-up. constant: the full rate; linear: the full rate, then an even fall to
 * last_lr_ratio in the last decay_steps of total_steps; cosine: as linear, the fall being half a cosine;
 * wsd: warm-up, stable, decay: as linear, but decay_steps is a tenth of total_steps unless it is given;
 * wsd_sqrt: as wsd, the fall being 1 - sqrt; inverse_sqrt: the root of warmup_steps over the steps taken,
 * not below last_lr_ratio; needs a warm-up. */
typedef int32_t gw_schedule;
enum gw_schedule_value { GW_SCHEDULE_INVALID = -1, GW_CONSTANT = 0, GW_LINEAR = 1, GW_COSINE = 2, GW_WSD = 3, GW_WSD_SQRT = 4, GW_INVERSE_SQRT = 5 };

/* Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: a second moment of rows and columns, and
 * rates relative to the size of the parameter, at most 1 / sqrt(t) at step t. States (gw_parameter_state):
 * row_var: average of the means of a row's squared gradients; 1 in the last dim; col_var: average of the
 * means of a column's squared gradients; 1 in the last dim but one; variance: of 1-d parameters: average
 * of the squared gradient. */
typedef struct gw_adafactor_options {
  size_t struct_size;
  const gw_ext *next;
  double lr; /* Learning rate. Default 1e-2, in [0, inf). */
  double beta2_decay; /* Step t has weight t^beta2_decay in the averages. Default -0.8, in [-1, 0]. */
  /* Least root mean square of a parameter, by which its rate is multiplied. Default 1e-3, in (0, 1). */
  double eps;
  /* An update with a greater root mean square is scaled down to it. Default 1, in [1, inf). */
  double clip_threshold;
  /* Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0, inf). */
  double weight_decay;
  gw_schedule schedule; /* How the learning rate goes on after the warm-up. Default GW_CONSTANT. */
  int32_t reserved;
  /* Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
   * Default 0, in [0, 1). */
  double ema_decay;
  int64_t warmup_steps; /* Steps in which the rate rises from 0. Default 0. */
  int64_t total_steps; /* Where the decay of the rate ends. Default 0. */
  double last_lr_ratio; /* The rate after total_steps, as a part of lr. Default 0, in [0, 1]. */
  /* Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default 0. */
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0. */
  double loss_scale;
  double initial_loss_scale; /* Where a dynamic scale starts; 1 to 2^24. Default 65536. */
  /* Finite steps in a row that double a dynamic scale; at least 1. Default 2000. */
  int64_t loss_scale_interval;
} gw_adafactor_options;
GW_API void gw_adafactor_options_init(gw_adafactor_options *options, size_t size);
/* Local. Makes the optimizer Adafactor, which keeps the model alive. The caller releases *out_optimizer.
 * INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its
 * range. */
GW_API gw_status gw_adafactor_create(gw_module *model, const gw_adafactor_options *options,
                                  gw_optimizer **out_optimizer);

/* AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay. States (gw_parameter_state):
 * exp_avg: moving average of the gradient; exp_avg_sq: moving average of the squared gradient. */
typedef struct gw_adamw_options {
  size_t struct_size;
  const gw_ext *next;
  double lr; /* Learning rate. Default 1e-3, in [0, inf). */
  double beta1; /* Decay of the average of the gradient. Default 0.9, in [0, 1). */
  double beta2; /* Decay of the average of the squared gradient. Default 0.999, in [0, 1). */
  double eps; /* Added to the root of that average. Default 1e-8, in (0, 1). */
  /* Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0, inf). */
  double weight_decay;
  gw_schedule schedule; /* How the learning rate goes on after the warm-up. Default GW_CONSTANT. */
  /* Of both averages: f32 or bf16 (rounded at random, so that a decay near 1 moves them); those of f64
   * parameters are f64. Default GW_F32. */
  gw_dtype moment_dtype;
  /* Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
   * Default 0, in [0, 1). */
  double ema_decay;
  int64_t warmup_steps; /* Steps in which the rate rises from 0. Default 0. */
  int64_t total_steps; /* Where the decay of the rate ends. Default 0. */
  double last_lr_ratio; /* The rate after total_steps, as a part of lr. Default 0, in [0, 1]. */
  /* Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default 0. */
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0. */
  double loss_scale;
  double initial_loss_scale; /* Where a dynamic scale starts; 1 to 2^24. Default 65536. */
  /* Finite steps in a row that double a dynamic scale; at least 1. Default 2000. */
  int64_t loss_scale_interval;
} gw_adamw_options;
GW_API void gw_adamw_options_init(gw_adamw_options *options, size_t size);
/* Local. Makes the optimizer AdamW, which keeps the model alive. The caller releases *out_optimizer.
 * INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its
 * range. */
GW_API gw_status gw_adamw_create(gw_module *model, const gw_adamw_options *options,
                                  gw_optimizer **out_optimizer);

/* AdamW with averages of 8 bits (Dettmers and others, 2022). 64 elements of a row of the whole tensor
 * share a scale, their largest magnitude; a code is one of 256 values, of the two next to the number at
 * random by their distance, so that averages move by less than a code: 0, 1, and seven decades 10^(d - 6)
 * (0.1 + 0.9 (k + 1/2) / n), d from 0 to 6, k below n, which is 2^d with either sign for the gradient's
 * average and 2^(d + 1) for that of its square. A tensor parallel cut inside of 64 elements is refused.
 * Averages of 1-d parameters are f32. States (gw_parameter_state): exp_avg: moving average of the
 * gradient: codes (u8), of 1-d parameters f32; exp_avg_sq: moving average of the squared gradient,
 * likewise; exp_avg_scale: largest magnitude of each block of 64 elements of a row of exp_avg;
 * exp_avg_sq_scale: of exp_avg_sq. */
typedef struct gw_adamw8bit_options {
  size_t struct_size;
  const gw_ext *next;
  double lr; /* Learning rate. Default 1e-3, in [0, inf). */
  double beta1; /* Decay of the average of the gradient. Default 0.9, in [0, 1). */
  double beta2; /* Decay of the average of the squared gradient. Default 0.999, in [0, 1). */
  double eps; /* Added to the root of that average. Default 1e-8, in (0, 1). */
  /* Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0, inf). */
  double weight_decay;
  gw_schedule schedule; /* How the learning rate goes on after the warm-up. Default GW_CONSTANT. */
  int32_t reserved;
  /* Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
   * Default 0, in [0, 1). */
  double ema_decay;
  int64_t warmup_steps; /* Steps in which the rate rises from 0. Default 0. */
  int64_t total_steps; /* Where the decay of the rate ends. Default 0. */
  double last_lr_ratio; /* The rate after total_steps, as a part of lr. Default 0, in [0, 1]. */
  /* Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default 0. */
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0. */
  double loss_scale;
  double initial_loss_scale; /* Where a dynamic scale starts; 1 to 2^24. Default 65536. */
  /* Finite steps in a row that double a dynamic scale; at least 1. Default 2000. */
  int64_t loss_scale_interval;
} gw_adamw8bit_options;
GW_API void gw_adamw8bit_options_init(gw_adamw8bit_options *options, size_t size);
/* Local. Makes the optimizer AdamW8bit, which keeps the model alive. The caller releases *out_optimizer.
 * INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its
 * range. */
GW_API gw_status gw_adamw8bit_create(gw_module *model, const gw_adamw8bit_options *options,
                                  gw_optimizer **out_optimizer);

/* Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay. States
 * (gw_parameter_state): exp_avg: moving average of the gradient. */
typedef struct gw_lion_options {
  size_t struct_size;
  const gw_ext *next;
  double lr; /* Learning rate. Default 1e-4, in [0, inf). */
  double beta1; /* Weight of the average in the direction of a step. Default 0.9, in [0, 1). */
  double beta2; /* Decay of the average of the gradient. Default 0.99, in [0, 1). */
  /* Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0, inf). */
  double weight_decay;
  gw_schedule schedule; /* How the learning rate goes on after the warm-up. Default GW_CONSTANT. */
  /* Of the average: f32 or bf16 (rounded at random, so that a decay near 1 moves it); that of f64
   * parameters is f64. Default GW_F32. */
  gw_dtype moment_dtype;
  /* Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
   * Default 0, in [0, 1). */
  double ema_decay;
  int64_t warmup_steps; /* Steps in which the rate rises from 0. Default 0. */
  int64_t total_steps; /* Where the decay of the rate ends. Default 0. */
  double last_lr_ratio; /* The rate after total_steps, as a part of lr. Default 0, in [0, 1]. */
  /* Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default 0. */
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0. */
  double loss_scale;
  double initial_loss_scale; /* Where a dynamic scale starts; 1 to 2^24. Default 65536. */
  /* Finite steps in a row that double a dynamic scale; at least 1. Default 2000. */
  int64_t loss_scale_interval;
} gw_lion_options;
GW_API void gw_lion_options_init(gw_lion_options *options, size_t size);
/* Local. Makes the optimizer Lion, which keeps the model alive. The caller releases *out_optimizer.
 * INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its
 * range. */
GW_API gw_status gw_lion_create(gw_module *model, const gw_lion_options *options,
                                  gw_optimizer **out_optimizer);

/* Muon (Jordan and others, 2024), as torch.optim.Muon: the step of a matrix is its momentum,
 * orthogonalised. AdamW steps all other parameters, and embeddings and heads, unless a rule says otherwise
 * (its adamw). States (gw_parameter_state): momentum_buffer: of matrices: moving average of the gradient;
 * exp_avg: of the others: moving average of the gradient; exp_avg_sq: of the others: moving average of the
 * squared gradient. */
typedef struct gw_muon_options {
  size_t struct_size;
  const gw_ext *next;
  double lr; /* Learning rate. Default 1e-3, in [0, inf). */
  double momentum; /* Decay of the average of a matrix's gradient. Default 0.95, in [0, 1). */
  int64_t ns_steps; /* Iterations of the orthogonalisation. Default 5, in [1, 100). */
  double eps; /* Least norm by which a matrix is divided before them. Default 1e-7, in (0, 1). */
  double adamw_lr_scale; /* Factor of the rate of parameters that AdamW steps. Default 1, in [0, inf). */
  double beta1; /* AdamW's decay of the average of the gradient. Default 0.9, in [0, 1). */
  double beta2; /* AdamW's decay of the average of the squared gradient. Default 0.999, in [0, 1). */
  double adamw_eps; /* AdamW adds it to the root of that average. Default 1e-8, in (0, 1). */
  /* Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0.1, in [0, inf). */
  double weight_decay;
  int32_t nesterov; /* Looks ahead along the momentum. Default 1. */
  /* A matrix's rate is lr * 0.2 sqrt(max(rows, columns)), to go with AdamW's; else lr * sqrt(max(1, rows /
   * columns)). Default 0. */
  int32_t match_rms;
  gw_schedule schedule; /* How the learning rate goes on after the warm-up. Default GW_CONSTANT. */
  /* In which matrices are gathered and orthogonalised: f32, or bf16 as PyTorch does; those of f64
   * parameters are f64. Default GW_F32. */
  gw_dtype matrix_dtype;
  gw_dtype moment_dtype; /* Of the averages: f32 or bf16; those of f64 parameters are f64. Default GW_F32. */
  int32_t reserved;
  /* Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
   * Default 0, in [0, 1). */
  double ema_decay;
  int64_t warmup_steps; /* Steps in which the rate rises from 0. Default 0. */
  int64_t total_steps; /* Where the decay of the rate ends. Default 0. */
  double last_lr_ratio; /* The rate after total_steps, as a part of lr. Default 0, in [0, 1]. */
  /* Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default 0. */
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0. */
  double loss_scale;
  double initial_loss_scale; /* Where a dynamic scale starts; 1 to 2^24. Default 65536. */
  /* Finite steps in a row that double a dynamic scale; at least 1. Default 2000. */
  int64_t loss_scale_interval;
} gw_muon_options;
GW_API void gw_muon_options_init(gw_muon_options *options, size_t size);
/* Local. Makes the optimizer Muon, which keeps the model alive. The caller releases *out_optimizer.
 * INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its
 * range. */
GW_API gw_status gw_muon_create(gw_module *model, const gw_muon_options *options,
                                  gw_optimizer **out_optimizer);

/* Stochastic gradient descent, with momentum if wanted. Weight decay is added to the gradient. States
 * (gw_parameter_state): momentum: the velocity; absent where momentum is 0. */
typedef struct gw_sgd_options {
  size_t struct_size;
  const gw_ext *next;
  double lr; /* Learning rate. Default 1e-3, in [0, inf). */
  /* How much of the velocity a step keeps; 0: plain gradient descent. Default 0, in [0, 1). */
  double momentum;
  /* Leaves 1-d parameters (biases, norms) alone, unless a rule says otherwise. Default 0, in [0, inf). */
  double weight_decay;
  int32_t nesterov; /* Looks ahead along the velocity; needs a momentum. Default 0. */
  gw_schedule schedule; /* How the learning rate goes on after the warm-up. Default GW_CONSTANT. */
  /* Decay of an average of the parameters, which is the state ema (gw_optimizer_swap_ema); 0: none.
   * Default 0, in [0, 1). */
  double ema_decay;
  int64_t warmup_steps; /* Steps in which the rate rises from 0. Default 0. */
  int64_t total_steps; /* Where the decay of the rate ends. Default 0. */
  double last_lr_ratio; /* The rate after total_steps, as a part of lr. Default 0, in [0, 1]. */
  /* Steps of the decay; 0: all after the warm-up, of wsd and wsd_sqrt a tenth of total_steps. Default 0. */
  int64_t decay_steps;
  const gw_optimizer_rule *rules;
  size_t rule_count;
  /* 0: dynamic where a parameter is computed in f16, else none; over 0: fixed; 1: none. Default 0. */
  double loss_scale;
  double initial_loss_scale; /* Where a dynamic scale starts; 1 to 2^24. Default 65536. */
  /* Finite steps in a row that double a dynamic scale; at least 1. Default 2000. */
  int64_t loss_scale_interval;
} gw_sgd_options;
GW_API void gw_sgd_options_init(gw_sgd_options *options, size_t size);
/* Local. Makes the optimizer SGD, which keeps the model alive. The caller releases *out_optimizer.
 * INVALID_STATE: before gw_parallelize or gw_module_materialize. INVALID_ARGUMENT names the option and its
 * range. */
GW_API gw_status gw_sgd_create(gw_module *model, const gw_sgd_options *options,
                                  gw_optimizer **out_optimizer);

#ifdef __cplusplus
}
#endif
#endif
