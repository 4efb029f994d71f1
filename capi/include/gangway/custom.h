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

/* What a callback sees. It is valid during the call, and the library owns the views.
 *
 * In the shapes phase there is no data, and each output starts as a copy of the first input's ndim, dtype and
 * dims. The callback writes outputs[i].ndim and .dtype, and the dims where outputs[i].shape points, which is
 * room for 8 numbers of its own: ((int64_t *)outputs[i].shape)[d] = n. It leaves the pointer itself, the
 * strides and the data alone.
 *
 * On a CPU the callback reads and writes the data in place. On another device (device_type of the views) data
 * are addresses of that device, which the host cannot read. The callback then puts its work on `stream` and
 * returns without waiting for it. Inputs and values are ready in the order of that stream, and outputs and
 * gradients must be. free_state does not wait for the stream either. */
typedef struct gw_call {
  size_t struct_size;
  const gw_ext *next;
  gw_phase phase;
  int32_t training;    /* 1: gradients will be wanted. */
  int32_t recomputing; /* 1: this forward repeats an earlier one. */
  int32_t microbatch;
  int32_t input_count;
  int32_t output_count;
  int32_t parameter_count;
  int32_t reserved;
  const gw_view *inputs;       /* In the forward and backward phases. */
  gw_view *outputs;            /* Shapes: to fill in. Forward: to write. Backward: as forward wrote them. */
  const gw_view *output_grads; /* In backward_input; null data mean zero. */
  const gw_view *input_grads;  /* In backward_input, to write; null data mean that it is not wanted. */
  const gw_view *parameters;   /* Values in the compute dtype. */
  const gw_view *parameter_grads; /* To add to; null data mean that the parameter is frozen. */
  void **state;                   /* What forward leaves for backward. free_state frees it once. */
  double loss_scale; /* Loss scale / N: what the gradient of a loss starts with. 0 in the shapes phase. */
  /* A function of seed, module, step, microbatch and data coordinate (ABI.md), so that a recomputed forward
   * has the same. */
  uint64_t seed;
  int64_t step;
  gw_gangs *gangs; /* Borrowed; null outside of gangs. */
  void *stream;    /* The device's stream, for the callback's work; null on a CPU. */
  void *context;   /* The library's own, for gw_call_forward and gw_call_backward. */
} gw_call;

typedef gw_status (*gw_call_fn)(void *user, gw_call *call);

typedef struct gw_custom_options {
  size_t struct_size;
  const gw_ext *next;
  const char *name; /* Names the module in errors. Default null: "Custom". */
  /* Gives the outputs' dims and dtype from those of the inputs. Local. It refuses inputs before anything
   * runs, on every rank, where no custom module is around this one. Default null: each output is one f64, as
   * those of a training root are. */
  gw_call_fn shapes;
  gw_call_fn forward;         /* Required. */
  gw_call_fn backward_input;  /* Required. Makes input_grads from output_grads. */
  gw_call_fn backward_weight; /* Adds to parameter_grads. Default null: backward_input does both. */
  /* Whether the module can compute in a dtype. Default null: in every compute dtype. */
  int32_t (*accepts_dtype)(void *user, gw_dtype dtype);
  void *user;
  gw_free_fn free_user;
  gw_free_fn free_state;
  int32_t input_count;  /* Default 1. */
  int32_t output_count; /* Default 1. A training root has two: {loss sum, weight}. */
  const gw_parameter_options *parameters;
  size_t parameter_count;
  gw_module *const *children; /* Modules that forward calls; the module keeps references to them. */
  const char *const *child_names;
  size_t child_count;
  /* How this module wants its children to be split over tp: rows as in gw_tensor_parallel_options.plan, with
   * paths that start at this module. Where several rows speak of one module, a row of the caller's wins, then
   * that of the innermost custom module. Default null: none. */
  const char *parallel_plan;
  /* Which modules below this one gw_parallelize and gw_replicate make parameter groups: patterns of paths
   * that start at this module, one on each line, such as "layers.*". What these groups leave is in the group
   * around them. NOT_FOUND in that call: no module matches. Default null: none; a root that says nothing has
   * a group for each child. */
  const char *parameter_groups;
} gw_custom_options;
GW_API void gw_custom_options_init(gw_custom_options *options, size_t size);
/* Local. Makes a custom module. free_user runs once, also when this call fails. The caller releases
 * *out_model. INVALID_ARGUMENT names the field, child or line of the plan. INVALID_STATE: a child is part of
 * another module, or bound to gangs. */
GW_API gw_status gw_custom_create(const gw_custom_options *options, gw_module **out_model);
/* Collective, inside a forward callback, on its thread. Runs a child. Its *out_count outputs live as long as
 * the call's own inputs. INVALID_ARGUMENT: no such child, or out_capacity is less than the number of outputs,
 * which is seen before the child runs. INVALID_STATE: `call` is not running. */
GW_API gw_status gw_call_forward(gw_call *call, int32_t child, const gw_view *inputs, size_t input_count,
                                 gw_view out_views[], size_t out_capacity, size_t *out_count);
/* Collective, inside a backward_input callback, on its thread. Gives the gradients of the child's inputs, as
 * many as its forward had, with null data where there is none. They live as long as those of gw_call_forward.
 * INVALID_ARGUMENT as in gw_call_forward. INVALID_STATE: in another callback. */
GW_API gw_status gw_call_backward(gw_call *call, int32_t child, const gw_view *output_grads,
                                  size_t grad_count, gw_view out_views[], size_t out_capacity,
                                  size_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
