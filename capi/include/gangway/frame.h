/* Manual forward and backward, for loops of the caller's own. module.h says which threads. */
#ifndef GANGWAY_FRAME_H
#define GANGWAY_FRAME_H

#include <gangway/module.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The activations of one forward, kept for its backward. */
typedef struct gw_frame gw_frame;

typedef struct gw_frame_options {
  size_t struct_size;
  const gw_ext *next;
  /* The backward of a loss starts with it: loss scale / N for a mean over N items. Default 1. */
  double loss_scale;
  int64_t step;
  int32_t microbatch;
  /* Of meshes with cp over 1. Default 0: inputs, outputs and their gradients are whole sequences, equal on
   * the ranks of cp. 1: they are this rank's parts, chunks r and 2 cp - 1 - r of the 2 cp equal chunks of dim
   * 1, for rank r of cp; a loss is that of the part. */
  int32_t sequence_parts;
} gw_frame_options;
GW_API void gw_frame_options_init(gw_frame_options *options, size_t size);
/* Local. Makes a frame, which keeps the model. The caller releases *out_frame. INVALID_STATE: before
 * gw_module_materialize. */
GW_API gw_status gw_frame_create(gw_module *model, const gw_frame_options *options, gw_frame **out_frame);
/* Local. Drops what was saved, so that the frame can be used again. A forward whose backward has not run is
 * given up, as it is by gw_frame_release and by a failed forward or backward. Gradients stay as they are.
 * INVALID_ARGUMENT: null. */
GW_API gw_status gw_frame_reset(gw_frame *frame);
GW_API gw_frame *gw_frame_retain(gw_frame *frame);
/* Local, any thread, never blocks. Gives one reference back, at any moment, on each rank at another time. The
 * last release frees what was saved; free_state of a custom module runs there. Null is allowed. */
GW_API void gw_frame_release(gw_frame *frame);
/* Collective. Runs the model's forward. Inputs on the host are copied to the device. With a null frame it is
 * an evaluation, which saves nothing. The caller releases each of the *out_count out_tensors, which are
 * copies.
 *
 * Ranks that differ only over tp or cp give the same rows (gw_gangs_data_shard) and get the same outputs.
 * Over cp the library cuts dim 1 of inputs with two dims or more, the sequence; outputs along it are put
 * together again, and outputs of one element, such as a loss, are summed, unless the frame has
 * sequence_parts. Labels are used as they are: label[i] is what token[i] must predict.
 *
 * Refusals are agreed, and the gangs stay usable. INVALID_ARGUMENT: out_capacity is less than the number of
 * outputs, an input has a wrong shape or dtype, or a token or label is outside of the vocabulary. The
 * `shapes` callback of a custom module runs once more in this check, and its error is returned as well.
 * INVALID_STATE: the frame has had a forward already. NOT_SUPPORTED: over cp, an output is neither along the
 * sequence nor of one element. MISMATCH: ranks differ in giving a frame, in no_sync, in sequence_parts, or in
 * number or dtypes of inputs, or ranks of cp give different rows. A rank refuses alone if the model has no
 * memory yet, or if `model` or `out_count` is null.
 *
 * What fails while the model runs (a custom module's forward, and what that calls) breaks the gangs of a
 * model of several ranks, in backward too: peers get ABORTED with its text. */
GW_API gw_status gw_module_forward(gw_module *model, const gw_view *inputs, size_t input_count,
                                   gw_frame *frame, void *stream, gw_tensor *out_tensors[],
                                   size_t out_capacity, size_t *out_count);
/* Collective. Runs the backward of the frame's forward. It takes the gradients of the outputs (none for a
 * loss) and gives those of the inputs (null handles where there is none), both whole where the forward's
 * outputs were; the caller releases the results as in gw_module_forward. It adds the sum over data ranks to
 * the local gradients, and resets the frame. Refusals are agreed, as in gw_module_forward, and leave the
 * frame as it was. INVALID_ARGUMENT: a gradient's shape or dtype, more gradients than outputs, out_capacity.
 * INVALID_STATE: the frame has had no forward. MISMATCH: ranks differ in no_sync. */
GW_API gw_status gw_module_backward(gw_module *model, const gw_view *output_grads, size_t grad_count,
                                    gw_frame *frame, void *stream, gw_tensor *out_tensors[],
                                    size_t out_capacity, size_t *out_count);
/* Local. With no_sync 1, backward adds up gradients, but does not reduce them over replicas or where
 * accumulate_unsharded is on, until the first backward after no_sync 0. It must be the same on every rank;
 * forward and backward compare it. INVALID_STATE: the call comes before gw_module_materialize. */
GW_API gw_status gw_module_set_no_sync(gw_module *model, int32_t no_sync);

#ifdef __cplusplus
}
#endif
#endif
