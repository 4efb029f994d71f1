/* Linear layers in FP8: the three products of a layer, y = x W^T, dx = dy W and dW = dy^T x, take 8-bit codes
 * of their operands. A code stands for code * scale, with scale = max(largest magnitude, 1e-12) / top in f32.
 * Codes are rounded to nearest even and kept within the top, 448 of e4m3 and 57344 of e5m2; NaN stays NaN,
 * and an infinity becomes NaN. Masters, gradients, reductions, biases and the head stay as they are.
 *
 * Scales of a whole tensor are those of what a rank has: its rows of the batch, and its part of a weight that
 * tp splits. So losses and gradients depend on the mesh and on the microbatches, within what FP8 rounds.
 * Scales of rows do not depend on how rows are dealt out to ranks, and ranks of tp that have parts of one row
 * agree on its scale; only dW, whose sums run over the tokens of a microbatch, has scales that depend on it.
 * gw_verify finds such differences, too, so give it the model without FP8.
 *
 * A CPU decodes the codes and multiplies in f32 (f64 for f64): what a GPU would compute, not faster than
 * without FP8. A GPU takes sizes that are multiples of 16: in, out and, where the weight is trained, the
 * tokens of a microbatch, all of one rank. */
#ifndef GANGWAY_FP8_H
#define GANGWAY_FP8_H

#include <gangway/module.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What shares a scale, and where it comes from. */
typedef int32_t gw_fp8_scaling;
enum gw_fp8_scaling_value {
  GW_FP8_SCALING_INVALID = -1,
  GW_FP8_TENSOR = 0,  /* A tensor, from its values. x and W are e4m3, dy is e5m2. */
  GW_FP8_DELAYED = 1, /* Likewise, from the largest magnitude of earlier steps. */
  GW_FP8_ROW = 2      /* A row along the dim that is summed, anew for each product. All are e4m3. */
};

typedef struct gw_fp8_options {
  size_t struct_size;
  const gw_ext *next;
  /* Patterns of module paths (module.h), separated by commas: "model.layers.*.mlp.*". The linear layers among
   * the modules that a pattern matches compute in FP8, except an lm_head. Default null: every linear layer. */
  const char *patterns;
  gw_fp8_scaling scaling; /* Default GW_FP8_TENSOR. */
  int32_t history;        /* Steps of GW_FP8_DELAYED, 1 to 4096. Default 16. */
} gw_fp8_options;
GW_API void gw_fp8_options_init(gw_fp8_options *options, size_t size);

/* Local. Makes linear layers of a whole model compute in FP8. Call it before gw_parallelize, or the first call
 * that wraps the model, with the same options on every rank; several calls may give layers different options.
 * Null options are the defaults. With GW_FP8_DELAYED each microbatch of the first step takes scales of its own
 * values; all microbatches of a later step have the same scales. Checkpoints hold no magnitudes: a new model
 * that loads one begins with such a first step, and a model that loads one between its steps keeps what it
 * knows. In loops with frames, gw_frame_options.step tells steps apart; if it never changes, each scale is
 * that of its own values. INVALID_ARGUMENT: an option, or a pattern that matches no linear layer which can
 * compute in FP8. NOT_FOUND: nothing matches a pattern. INVALID_STATE: the model is wrapped already, is part
 * of another one, or a layer computes in FP8 already. A forward on a GPU: INVALID_ARGUMENT for other sizes,
 * NOT_SUPPORTED in f64. */
GW_API gw_status gw_fp8_apply(gw_module *model, const gw_fp8_options *options);

#ifdef __cplusplus
}
#endif
#endif
