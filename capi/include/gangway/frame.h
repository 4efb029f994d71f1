/* Manual forward and backward, for loops of the caller's own. One thread at a time per model. */
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
  double loss_scale; /* 1; what the backward of a loss starts with: loss scale / N for a mean over N items */
  int64_t step;
  int32_t microbatch;
  int32_t reserved;
} gw_frame_options;
/* Local. Sets up a gw_frame_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_frame_options_init(gw_frame_options *options, size_t size);
/* Local. The caller releases *out_frame, which keeps the model. INVALID_STATE before gw_module_materialize. */
GW_API gw_status gw_frame_create(gw_module *model, const gw_frame_options *options, gw_frame **out_frame);
/* Local. Forgets what was saved, so that the frame can be used again. A forward that awaits its backward is given up, as
 * by gw_frame_release and by a failed forward or backward. Gradients stay as they are. INVALID_ARGUMENT: null. */
GW_API gw_status gw_frame_reset(gw_frame *frame);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_frame *gw_frame_retain(gw_frame *frame);
/* Local, never blocks; from any thread at any moment, on each rank at another time: the last release frees what was
 * saved (free_state of a custom module runs there). */
GW_API void gw_frame_release(gw_frame *frame);
/* Collective. Inputs on the host are copied to the device. Null frame: evaluation. The caller releases each of
 * out_tensors, which are copies, *out_count of them.
 * Refusals are agreed: before anything runs each rank looks at its own arguments; all return the first refusal
 * (lowest rank) with its text, and the gangs work on. INVALID_ARGUMENT: out_capacity is less than the outputs, an
 * input's shape or dtype, a token or label outside of the vocabulary, what a custom module's `shapes` returns (it
 * runs once more for that). INVALID_STATE: the frame has had a forward. MISMATCH: ranks differ in giving a frame, in
 * no_sync, or in number or dtypes of inputs. On its rank alone: no memory yet, `model` or `out_count` null. What
 * fails while the model runs (a custom module's forward, and what that calls) breaks the gangs of a model of several
 * ranks, in backward too: peers get ABORTED with its text. */
GW_API gw_status gw_module_forward(gw_module *model, const gw_view *inputs, size_t input_count,
                                   gw_frame *frame, void *stream, gw_tensor *out_tensors[],
                                   size_t out_capacity, size_t *out_count);
/* Collective. Gradients of the outputs in (none for a loss), of the inputs out (null handles where there is
 * none), which the caller releases as in gw_module_forward; adds the sum over data ranks to the local
 * gradients. The frame is reset. Refusals are agreed, as in forward, and leave the frame as it was. INVALID_ARGUMENT: a
 * gradient's shape or dtype, more of them than outputs, out_capacity. INVALID_STATE: the frame has had no forward.
 * MISMATCH: ranks differ in no_sync. */
GW_API gw_status gw_module_backward(gw_module *model, const gw_view *output_grads, size_t grad_count,
                                    gw_frame *frame, void *stream, gw_tensor *out_tensors[],
                                    size_t out_capacity, size_t *out_count);
/* Local. 1: backward adds up without reducing over replicas and unsharded accumulations, until the first
 * backward after 0. The same on every rank, which forward and backward compare. INVALID_STATE before
 * gw_module_materialize. */
GW_API gw_status gw_module_set_no_sync(gw_module *model, int32_t no_sync);

#ifdef __cplusplus
}
#endif
#endif
