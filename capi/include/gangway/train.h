/* Training steps, evaluation, text generation. */
#ifndef GANGWAY_TRAIN_H
#define GANGWAY_TRAIN_H

#include <gangway/optim.h>
#include <gangway/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The rows of this rank's data coordinate; dim 0 of every view is the batch. Views lie in memory of the
 * host, which is copied to another device, or of the gang's device. Those of the host may be strided (rows cut out of a
 * longer array): the step takes a dense copy. */
typedef struct gw_batch {
  size_t struct_size;
  const gw_ext *next;
  const gw_view *inputs;
  size_t input_count;
  const gw_view *targets;
  size_t target_count;
  int64_t weight;  /* items that count; -1: labels that are not -100 */
  int32_t shifted; /* 0: labels are the tokens, the library shifts them; 1: they are shifted already */
  int32_t reserved;
} gw_batch;
/* Local. Sets up a gw_batch: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_batch_init(gw_batch *batch, size_t size);

typedef struct gw_step_options {
  size_t struct_size;
  const gw_ext *next;
  int32_t microbatches;     /* 1 */
  int32_t allow_non_finite; /* 0: a non-finite loss or gradient skips the step alike on all ranks */
  double max_grad_norm;     /* 0: no clipping */
  double norm_type;         /* 2; over 0 and at most 64, or infinity: the largest element */
  double scale;             /* 1; of gradients, for loops that seed with 1 */
} gw_step_options;
/* Local. Sets up a gw_step_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_step_options_init(gw_step_options *options, size_t size);

typedef int32_t gw_skip_reason;
enum gw_skip_reason_value {
  GW_SKIP_INVALID = -1,
  GW_SKIP_NONE = 0,
  GW_SKIP_NO_WEIGHT = 1, /* no item counted on any rank */
  GW_SKIP_NON_FINITE = 2 /* the loss or a gradient */
};

typedef struct gw_step_result {
  size_t struct_size;
  const gw_ext *next;
  double loss;              /* global mean, on every rank; NaN if no item counted */
  double grad_norm;         /* before clipping; -1: not taken */
  double tokens_per_second; /* over all data ranks */
  double seconds;
  double wait_seconds; /* of it, waiting in collectives */
  double lr;
  int64_t weight; /* items that counted, over all data ranks */
  int64_t step;
  int32_t skipped; /* 1: nothing was changed; skip_reason says why */
  gw_skip_reason skip_reason;
  double loss_scale; /* that the step used; 1: none (optim.h). The next one's: gw_optimizer_loss_scale */
} gw_step_result;
/* Local. Sets up a gw_step_result: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_step_result_init(gw_step_result *result, size_t size);

/* Collective. One step: weights summed, forward and backward of each microbatch, gradients, clip, optimizer.
 * Null options: defaults. Null result: not told. INVALID_ARGUMENT: one rank's bad argument comes back on
 * every rank, as does what gw_module_forward would refuse of any microbatch: custom modules' `shapes` run for
 * each before anything else does, in a step that is skipped for want of weight, too. INVALID_STATE, on every rank: a
 * rank's forward awaits its backward. MISMATCH, on every rank and with both values: ranks have different step options or
 * optimizers (kind, hyperparameters, rules, learning rate, loss scale, steps). A failure after the first
 * forward (CALLER, PEER_LOST and so on) aborts every gang of a model of several ranks. A model of one rank works on: its
 * gradients are empty, its parameters unchanged unless the optimizer had begun. Ids and labels of a batch whose weight is
 * given are looked at on a GPU at the end of the step: INVALID_ARGUMENT then empties the gradients, changes nothing else,
 * and the gangs work on. */
GW_API gw_status gw_train_step(gw_module *model, gw_optimizer *optimizer, const gw_batch *batch,
                               const gw_step_options *options, void *stream, gw_step_result *result);
/* Collective. The loss of a batch; saves and changes nothing. INVALID_ARGUMENT, on every rank: a rank's
 * batch, options or result, and what gw_module_forward would refuse of any microbatch. MISMATCH: different options. */
GW_API gw_status gw_eval_step(gw_module *model, const gw_batch *batch, const gw_step_options *options,
                              void *stream, gw_step_result *result);
/* Collective. The optimizer's half for own loops: divides by the loss scale, scales, clips, steps, empties the
 * gradients, and lets a dynamic loss scale follow. Null result: not told. INVALID_ARGUMENT, on every rank: a
 * rank's options; INVALID_STATE, on every rank: a rank's forward awaits its backward. MISMATCH as in gw_train_step. */
GW_API gw_status gw_optimizer_step(gw_optimizer *optimizer, const gw_step_options *options, void *stream,
                                   gw_step_result *result);

typedef struct gw_generate_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t token_count; /* 64 */
  double temperature;  /* 1; 0: the most likely token */
  int64_t top_k;       /* 0: all */
  uint64_t seed;
} gw_generate_options;
/* Local. Sets up a gw_generate_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_generate_options_init(gw_generate_options *options, size_t size);
/* Collective. Continues `prompt` (token ids) by a sharded Llama: *out_count tokens (token_count of them), the
 * same on every rank. INVALID_ARGUMENT, on every rank: a rank's out_capacity is less than token_count; no
 * Llama; an id outside of the vocabulary. INVALID_STATE: a model without memory, a logit that is not finite. */
GW_API gw_status gw_generate(gw_module *model, const int64_t prompt[], size_t prompt_count,
                             const gw_generate_options *options, void *stream, int64_t out_tokens[],
                             size_t out_capacity, size_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
