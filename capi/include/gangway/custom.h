/* Custom modules: the caller's own compute as a module. */
#ifndef GANGWAY_CUSTOM_H
#define GANGWAY_CUSTOM_H

#include <gangway/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t gw_phase;
enum gw_phase_value {
  GW_PHASE_INVALID = -1,
  GW_PHASE_SHAPES = 0,
  GW_PHASE_FORWARD = 1,
  GW_PHASE_BACKWARD_INPUT = 2,
  GW_PHASE_BACKWARD_WEIGHT = 3
};

/* What a callback sees; valid during the call. Views are owned by the library. In the shapes phase there is no data,
 * and each output starts as a copy of the first input's ndim, dtype and dims. The callback writes outputs[i].ndim and
 * .dtype, and the dims where outputs[i].shape points, which is room for 8 numbers of its own: ((int64_t
 * *)outputs[i].shape)[d] = n. It leaves the pointer itself, the strides and the data alone.
 *
 * On a CPU the callback reads and writes the data in place. On another device (device_type of the views) data are addresses
 * of that device, which the host cannot read: the callback puts its work on `stream` and returns without waiting for it.
 * Inputs and values are ready in the order of that stream, and outputs and gradients must be. free_state does not wait for
 * the stream either. */
typedef struct gw_call {
  size_t struct_size;
  const gw_ext *next;
  gw_phase phase;
  int32_t training;    /* gradients will be wanted */
  int32_t recomputing; /* this forward repeats an earlier one */
  int32_t microbatch;
  int32_t input_count;
  int32_t output_count;
  int32_t parameter_count;
  int32_t reserved;
  const gw_view *inputs;          /* forward, and backward phases */
  gw_view *outputs;               /* shapes: to fill in; forward: to write; backward: as written */
  const gw_view *output_grads;    /* backward_input; null data: zero */
  const gw_view *input_grads;     /* backward_input: to write; null data: not wanted */
  const gw_view *parameters;      /* values in the compute dtype */
  const gw_view *parameter_grads; /* to add to; null data: frozen */
  void **state;                   /* what forward leaves for backward; freed once by free_state */
  double loss_scale; /* loss scale / N: what the gradient of a loss starts with; 0 in the shapes phase */
  uint64_t seed;     /* f(seed, module, step, microbatch, data coordinate); the same when recomputed */
  int64_t step;
  gw_gangs *gangs; /* borrowed; null outside of gangs */
  void *stream;    /* of the device, for the callback's work; null on a CPU */
  void *context;   /* the library's; for gw_call_forward and gw_call_backward */
} gw_call;

typedef gw_status (*gw_call_fn)(void *user, gw_call *call);

typedef struct gw_custom_options {
  size_t struct_size;
  const gw_ext *next;
  const char *name; /* null: "Custom"; names the module in errors */
  /* Local: outputs' dims and dtype from the inputs'; refuses inputs before anything runs, on every rank, where no
   * custom module is around this one. Null: each output is one f64, a training root's. */
  gw_call_fn shapes;
  gw_call_fn forward;         /* required */
  gw_call_fn backward_input;  /* required: output_grads -> input_grads */
  gw_call_fn backward_weight; /* adds to parameter_grads; null: backward_input does both */
  int32_t (*accepts_dtype)(void *user, gw_dtype dtype); /* null: every compute dtype */
  void *user;
  gw_free_fn free_user;
  gw_free_fn free_state;
  int32_t input_count;  /* 1 */
  int32_t output_count; /* 1; a training root: {loss sum, weight} */
  const gw_parameter_options *parameters;
  size_t parameter_count;
  gw_module *const *children; /* called by forward; keeps references */
  const char *const *child_names;
  size_t child_count;
  /* How it wants its children to be split over tp: rows as in gw_tensor_parallel_options.plan, with paths that start at this
   * module. For a module a row of the caller's, or of a custom module further in, wins. Null: none. */
  const char *parallel_plan;
} gw_custom_options;
/* Local. Sets up a gw_custom_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_custom_options_init(gw_custom_options *options, size_t size);
/* Local. free_user runs once, also when this fails. The caller releases *out_model. INVALID_ARGUMENT names
 * the field, child or line of the plan; INVALID_STATE: a child that is part of another module, or bound to gangs. */
GW_API gw_status gw_custom_create(const gw_custom_options *options, gw_module **out_model);
/* Collective. Inside a forward callback, on its thread: runs a child. Its outputs, *out_count of them, live
 * as long as the call's own inputs. INVALID_ARGUMENT: no such child; out_capacity is less than the outputs,
 * seen before the child runs. INVALID_STATE: `call` is not one that runs. */
GW_API gw_status gw_call_forward(gw_call *call, int32_t child, const gw_view *inputs, size_t input_count,
                                 gw_view out_views[], size_t out_capacity, size_t *out_count);
/* Collective. Inside a backward_input callback, on its thread: the gradients of the child's inputs (null data
 * where there is none), as many as its forward had; likewise. INVALID_ARGUMENT as in gw_call_forward;
 * INVALID_STATE: in another callback. */
GW_API gw_status gw_call_backward(gw_call *call, int32_t child, const gw_view *output_grads,
                                  size_t grad_count, gw_view out_views[], size_t out_capacity,
                                  size_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
