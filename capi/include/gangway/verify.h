/* Verification: one training step over a mesh against the same step on one rank, both in f64. It finds
 * gradients that are summed twice or not at all, plans that do not fit a module, and losses that are divided
 * by the wrong number; also in modules of the caller's own. */
#ifndef GANGWAY_VERIFY_H
#define GANGWAY_VERIFY_H

#include <gangway/parallel.h>
#include <gangway/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Describes the model anew, in *out_model, which the library then releases. */
typedef gw_status (*gw_build_fn)(void *user, gw_module **out_model);

typedef struct gw_verify_options {
  size_t struct_size;
  const gw_ext *next;
  const gw_parallel_options *parallel; /* Of the mesh; its dtypes are not used. Default null: the defaults. */
  double tolerance;     /* The largest norm of a difference, over that of what is compared. Default 1e-8. */
  int32_t microbatches; /* Of the step over the mesh; with pp, as in gw_train_step. Default 1. */
  int32_t reserved;
} gw_verify_options;
GW_API void gw_verify_options_init(gw_verify_options *options, size_t size);

typedef struct gw_verify_result {
  size_t struct_size;
  const gw_ext *next;
  double loss;           /* Of the step on one rank. */
  double mesh_loss;      /* Of the step over the mesh. */
  double grad_norm;      /* On one rank. */
  double mesh_grad_norm; /* Over the mesh. */
  int64_t parameters;    /* The number of parameters that have gradients. */
  int64_t differing;     /* The number of these whose gradients differ. */
  double difference;     /* Of the gradient that the text names, over its norm; 0: none differs. */
} gw_verify_result;
GW_API void gw_verify_result_init(gw_verify_result *result, size_t size);

/* Collective. Builds the model twice, trains one step over `gangs` and one on a single rank, with the same
 * first values and the batches of all ranks together, and compares first values, loss, norm of the gradients,
 * every gradient, and the loss after a step of SGD. Null gangs are the thread's current ones, else one rank.
 * `build` runs on the thread of the call, twice on every rank, and describes the same model each time;
 * `batch` is this rank's, as in gw_train_step. Every rank computes the whole model alone, too, so give a
 * small configuration of a large one. Null options are the defaults, a null `result` is skipped.
 *
 * MISMATCH, on every rank, and *result is filled in: the two steps differ; the text names the first
 * parameter whose gradient does, in the order of backward, and by how much. The error lies in that
 * parameter's module or in the module that runs next in the forward. INVALID_ARGUMENT: an option is out of
 * range, `build` is null or describes another model the second time, or no item of the batch counts.
 * CALLER, or the code that `build` returned: `build` failed. Otherwise what gw_parallelize and
 * gw_train_step return. */
GW_API gw_status gw_verify(gw_gangs *gangs, gw_build_fn build, void *user, const gw_batch *batch,
                           const gw_verify_options *options, gw_verify_result *result);

/* One step of a program that computes by itself with shard groups: makes its groups in f64 over `gangs`, with
 * the same names, first values and seed at each call, takes the rows of the batch that gw_gangs_data_shard
 * says (of gangs of one rank: all), computes the loss and the gradients, and reduces them. In *out_loss it
 * leaves the mean loss of the whole batch, and in *out_model a gw_module_from_groups of its groups, which the
 * library then releases. It does not update the parameters. `gangs` are valid during the call; groups keep
 * them. */
typedef gw_status (*gw_groups_step_fn)(void *user, gw_gangs *gangs, double *out_loss, gw_module **out_model);

/* Collective. The same for shard groups: calls `step` with `gangs`, and once more on every rank with gangs of
 * that rank alone, and compares first values, loss, norm of the gradients, every gradient, and the values
 * after a step of SGD. Null gangs are the thread's current ones, else one rank. Of the options it takes the
 * tolerance alone; null options are the defaults, a null `result` is skipped.
 *
 * MISMATCH, on every rank, and *result is filled in: as gw_verify, or the ranks gave other losses.
 * INVALID_ARGUMENT: an option, `step` is null, gave no model, one of other gangs, or other groups the second
 * time, a parameter that is not f64, gradients that are not finite or all 0. INVALID_STATE: a group whose
 * gradients `step` did not reduce. CALLER, or the code that it returned: `step`; the gangs are then broken,
 * since peers may wait in it. */
GW_API gw_status gw_verify_groups(gw_gangs *gangs, gw_groups_step_fn step, void *user,
                                  const gw_verify_options *options, gw_verify_result *result);

#ifdef __cplusplus
}
#endif
#endif
