/* Parallelism by wrapping: fully sharded and plain data parallel, recomputation, and shard groups for programs that
 * compute by themselves. Set-up calls are collective over the gangs and their refusals are agreed: every rank returns
 * the first refusal and nothing has changed. */
#ifndef GANGWAY_PARALLEL_H
#define GANGWAY_PARALLEL_H

#include <gangway/parameter.h>
#include <gangway/pipeline.h>
#include <gangway/work.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t gw_strategy;
enum gw_strategy_value {
  GW_STRATEGY_INVALID = -1,
  GW_FULL_SHARD = 0,    /* unshard per use */
  GW_SHARD_GRAD_OP = 1, /* keep after forward */
  GW_NO_SHARD = 2       /* plain data parallel */
};

typedef int32_t gw_recompute_kind;
enum gw_recompute_kind_value {
  GW_RECOMPUTE_INVALID = -1,
  GW_RECOMPUTE_NONE = 0,
  GW_RECOMPUTE_FULL = 1,
  GW_RECOMPUTE_SELECTIVE =
      2, /* keeps outputs of linear layers and attention; recomputes those of norms and SwiGLU */
  GW_RECOMPUTE_EVERY = 3, /* each recompute_every-th block */
  GW_RECOMPUTE_RATIO = 4  /* recompute_ratio of the blocks */
};

/* How attention goes over the ranks of cp, each of which has a part of the sequence. */
typedef int32_t gw_context_method;
enum gw_context_method_value {
  GW_CONTEXT_INVALID = -1,
  GW_CONTEXT_RING = 0, /* keys and values travel from rank to rank while each computes with those at hand */
  GW_CONTEXT_ALL_GATHER = 1, /* each rank gathers all keys and values */
  GW_CONTEXT_ALL_TO_ALL = 2  /* each rank has the whole sequence of some heads (Ulysses) */
};

/* How the layers of a model are shared out among the stages of a pipeline. */
typedef int32_t gw_stage_split;
enum gw_stage_split_value {
  GW_STAGE_SPLIT_INVALID = -1,
  GW_STAGE_SPLIT_EVEN = 0, /* the same number of layers; the first stages one more where it does not divide */
  GW_STAGE_SPLIT_BY_COST =
      1, /* the largest stage has as few parameters as possible, embedding and head counted */
  GW_STAGE_SPLIT_GIVEN = 2 /* first_layers */
};

typedef struct gw_dtype_rule {
  size_t struct_size;
  const gw_ext *next;
  const char *pattern; /* of whole parameter names */
  gw_dtype dtype;
  int32_t reserved;
} gw_dtype_rule;
/* Local. Sets up a gw_dtype_rule: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_dtype_rule_init(gw_dtype_rule *rule, size_t size);

typedef struct gw_shard_options {
  size_t struct_size;
  const gw_ext *next;
  gw_strategy strategy;
  /* -1: the strategy's; 0; 1. k over 1: after forward values stay split over k consecutive ranks, and backward gathers them
   * from those; a factor of the ranks of dp_shard x cp. Where ranks share rows in memory nothing moves, as with 1. Shard
   * groups and pipelines take -1, 0 and 1: NOT_SUPPORTED. */
  int32_t reshard_after_forward;
  gw_dtype param_dtype;        /* compute dtype: f64, f32, bf16 or f16; GW_DTYPE_NONE: the master's */
  gw_dtype reduce_dtype;       /* of gradients on the way; GW_DTYPE_NONE: f32 (f64 for f64) */
  gw_dtype output_dtype;       /* of the unit's outputs; GW_DTYPE_NONE: as computed */
  int32_t cast_forward_inputs; /* 1 */
  /* 0; 1: shards, their gradients and optimizer state lie in pinned memory of the host (gw_memory_use.host), and travel
   * beside compute. Same numbers. Streams order them like memory of the device, which their views name. It changes nothing
   * on a CPU. INVALID_ARGUMENT with GW_NO_SHARD. */
  int32_t cpu_offload;
  int32_t prefetch_forward;     /* 1 unit */
  int32_t prefetch_backward;    /* 1 unit */
  int32_t accumulate_unsharded; /* -1: the strategy's; 0: reduce each microbatch; 1: once */
  double bucket_cap_mb;         /* 25; GW_NO_SHARD */
  const gw_dtype_rule *rules;   /* param_dtype by name; last match wins */
  size_t rule_count;
} gw_shard_options;
/* Local. Sets up a gw_shard_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_shard_options_init(gw_shard_options *options, size_t size);

/* How a module is split over the ranks of tp. */
typedef int32_t gw_style;
enum gw_style_value {
  GW_STYLE_INVALID = -1,
  GW_STYLE_REPLICATE = 0,         /* whole on each rank */
  GW_STYLE_COLWISE = 1,           /* a linear or an embedding, by its outputs */
  GW_STYLE_ROWWISE = 2,           /* a linear, by its inputs; an embedding, by its rows */
  GW_STYLE_SEQUENCE_PARALLEL = 3, /* a module that works token by token (a norm), on parts of the sequence */
  GW_STYLE_PREPARE_INPUT = 4,     /* the first input is moved; other rows split what is below the module */
  GW_STYLE_PREPARE_OUTPUT = 5     /* the first output is moved, likewise */
};

/* How a value lies over the ranks of tp. */
typedef int32_t gw_placement;
enum gw_placement_value {
  GW_PLACEMENT_INVALID = -1,
  GW_PLACEMENT_DEFAULT = 0,   /* the style's */
  GW_PLACEMENT_REPLICATE = 1, /* one value, on all ranks; its gradient is one value, too */
  GW_PLACEMENT_VARYING = 2,   /* all ranks have the value; its gradient is the sum of theirs */
  GW_PLACEMENT_PARTIAL = 3,   /* the value is the sum of the ranks' parts */
  GW_PLACEMENT_SHARD = 4      /* each rank has its part of a dim */
};

/* A row of a tensor parallel plan. */
typedef struct gw_plan_row {
  size_t struct_size;
  const gw_ext *next;
  const char *pattern; /* of module paths; '*' stays within one dot, "" is the root */
  gw_style style;
  gw_placement input; /* how the first input comes */
  int32_t input_dim;  /* of GW_PLACEMENT_SHARD; -1: the last dim */
  /* How the first output is wanted; GW_STYLE_PREPARE_INPUT and _OUTPUT: what `input` is moved to. */
  gw_placement output;
  int32_t output_dim;
  int32_t reserved;
} gw_plan_row;
/* Local. Sets up a gw_plan_row: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_plan_row_init(gw_plan_row *row, size_t size);

/* The caller's rows are those of `plan`, then `rows`. For a module they win over what a custom module's own plan and the
 * built-in plan of a Llama say of it. A module has at most one row of the caller's. */
typedef struct gw_tensor_parallel_options {
  size_t struct_size;
  const gw_ext *next;
  /* Rows "pattern -> style", a line each; null: none:
   *   model.layers.*.mlp.up_proj -> colwise
   *   model.layers.*.mlp.down_proj -> rowwise, output Shard(1)
   * with the styles colwise, rowwise, sequence_parallel, replicate, prepare_input(a, b), prepare_output(a, b), the
   * placements Replicate, Varying, Partial, Shard(dim), and '#' for comments. */
  const char *plan;
  const gw_plan_row *rows; /* the same as structs */
  size_t row_count;
  int32_t sequence_parallel; /* 0; 1: norms of a Llama work on parts of the sequence */
  int32_t loss_parallel; /* 1: logits of a Llama stay split over the vocabulary; 0: each chunk is gathered */
  /* 1. k over 1: where a sequence is gathered for a linear or summed into parts, each rank's part goes in k chunks, and the
   * product of one chunk runs while another travels, in forward passes of training. k divides the tokens of a part.
   * INVALID_ARGUMENT where no row moves a sequence: sequence_parallel, or rows of the caller, do. */
  int32_t overlap_chunks;
  int32_t reserved;
} gw_tensor_parallel_options;
/* Local. Sets up a gw_tensor_parallel_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_tensor_parallel_options_init(gw_tensor_parallel_options *options, size_t size);

typedef struct gw_parallel_options {
  size_t struct_size;
  const gw_ext *next;
  const gw_shard_options *shard; /* of each unit; null: the defaults of gw_shard_options */
  gw_dtype master_dtype;         /* GW_F32 or GW_F64; GW_DTYPE_NONE: f32 */
  gw_recompute_kind recompute;
  double recompute_ratio;                            /* 1 */
  int32_t recompute_every;                           /* 2 */
  gw_context_method context_method;                  /* over cp */
  uint64_t seed;                                     /* of the first values */
  const gw_tensor_parallel_options *tensor_parallel; /* over tp; null: its defaults */
  /* Over pp. Null: "1f1b" with the microbatches of each step; microbatches 0: those of each step. shard_actions: at most so
   * many stages of a rank are unsharded at a time; 0: 3. */
  const gw_pipeline_options *pipeline;
  /* GW_STAGE_SPLIT_GIVEN: the layer that each stage begins with; the first is 0. */
  const int64_t *first_layers;
  size_t first_layer_count;
  gw_stage_split stage_split;
  /* 0; 1: what blocks save lies in pinned memory of the host from forward to backward (gw_memory_use.host), and travels
   * beside compute. The device keeps what two blocks save. Same numbers. It changes nothing on a CPU. Blocks are what
   * recomputation takes as one; those that are recomputed save their inputs only. */
  int32_t activation_offload;
} gw_parallel_options;
/* Local. Sets up a gw_parallel_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_parallel_options_init(gw_parallel_options *options, size_t size);

/* Collective. Checks everything, then applies tensor and context parallelism (if the calls below have not done so),
 * recomputation and offload of activations, cuts a Llama or a sequential into the stages of pp, makes the units (of a language model: embedding | each
 * block | norm + head), takes memory and initialises. Call it once, before the optimizer is created. Null gangs: the
 * thread's current ones (gw_gangs_push_current), else one rank. NOT_SUPPORTED: pp over 1 for a model that is no Llama
 * and no sequential. INVALID_ARGUMENT names the option, or the row of the plan; NOT_FOUND: no module matches a row;
 * INVALID_STATE: a second time, after gw_fully_shard or gw_replicate, or options of what gw_tensor_parallel or
 * gw_context_parallel has done. MISMATCH, on every rank and with both values: ranks have different models (modules, shapes,
 * options, frozen parameters), options or seeds, or replicas got different first values. Refusals leave model and gangs as
 * they were. */
GW_API gw_status gw_parallelize(gw_module *model, gw_gangs *gangs, const gw_parallel_options *options);

/* Collective. Splits modules over tp as the plan says: the first of the pieces of gw_parallelize, for programs that make
 * them one by one: gw_tensor_parallel, gw_context_parallel, gw_recompute, gw_fully_shard or gw_replicate,
 * gw_module_materialize, in this order. A call that comes too late is INVALID_STATE, and so is one whose forerunner is
 * missing; the text names that call. Stages of pp are made by gw_parallelize alone. Null options: their defaults. On a mesh
 * without tp the plan is only checked. NOT_FOUND: no module matches a row; INVALID_ARGUMENT names the row and what does not
 * fit; INVALID_STATE: after gw_fully_shard or gw_replicate. Over tp also NOT_SUPPORTED: there is no row at all; and
 * INVALID_STATE: a second time. */
GW_API gw_status gw_tensor_parallel(gw_module *model, gw_gangs *gangs,
                                    const gw_tensor_parallel_options *options);
/* Collective. Lets attention go over the ranks of cp, each of which has a part of the sequence. On a mesh without cp it is
 * only checked. INVALID_ARGUMENT: a model without attention, heads that the method cannot divide; INVALID_STATE: after
 * gw_fully_shard or gw_replicate, or over cp a second time. */
GW_API gw_status gw_context_parallel(gw_module *model, gw_gangs *gangs, gw_context_method method);
/* Local. INVALID_ARGUMENT: an unknown kind, every below 1, ratio outside [0, 1]. INVALID_STATE: after gw_fully_shard,
 * gw_replicate or gw_module_materialize. */
GW_API gw_status gw_recompute(gw_module *model, gw_recompute_kind kind, int32_t every, double ratio);
/* Collective. Each match of `pattern` (whole paths; '*' stays within one dot) becomes a unit; "" is the root,
 * the last. gw_module_materialize follows. NOT_FOUND: no match; INVALID_ARGUMENT names the option, or matches
 * within each other; INVALID_STATE: it has memory, or is a unit already, or a mesh with tp or cp and no call of
 * gw_tensor_parallel or gw_context_parallel. */
GW_API gw_status gw_fully_shard(gw_module *model, const char *pattern, gw_gangs *gangs,
                                const gw_shard_options *options);
/* Collective. Plain data parallel for the whole model. gw_module_materialize follows. INVALID_ARGUMENT names
 * the option; INVALID_STATE as in gw_fully_shard. */
GW_API gw_status gw_replicate(gw_module *model, gw_gangs *gangs, const gw_shard_options *options);

/* Collective. From a folder of Hugging Face to a model that trains and generates: gw_llama_options_from_folder,
 * gw_llama_create, gw_parallelize with these options (null: their defaults), gw_module_load. Names and shapes of the files
 * are checked before memory is taken. Null gangs: the thread's current ones, else one rank. The caller releases
 * *out_model. Returns what those functions return, on every rank; IO with errno ENOENT: no such folder, or a file in it is missing. */
GW_API gw_status gw_llama_from_folder(gw_gangs *gangs, const char *folder, const gw_parallel_options *options,
                                      gw_module **out_model);

/* --- shard groups -------------------------------------------------------------------------------------------------- */

typedef struct gw_shard_group gw_shard_group;

/* Collective. Parameters of the caller's own model, sharded as one unit and filled by their initialisers.
 * Null gangs: the thread's current ones, else one rank. Null options: GW_FULL_SHARD. The caller releases *out_group.
 * INVALID_ARGUMENT names the option or parameter; MISMATCH: ranks differ in them; CALLER or what it returned: a fill callback. */
GW_API gw_status gw_shard_group_create(gw_gangs *gangs, const char *name,
                                       const gw_parameter_options *parameters, size_t parameter_count,
                                       const gw_shard_options *options, uint64_t seed,
                                       gw_shard_group **out_group);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_shard_group *gw_shard_group_retain(gw_shard_group *group);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_shard_group_release(gw_shard_group *group);
/* Collective. `into`: null, or one view of the caller's memory per parameter, which gets a stable copy.
 * INVALID_ARGUMENT: a view's shape, or one that is not floating and row-major. INVALID_STATE: between
 * begin_update and end_update. */
GW_API gw_status gw_shard_group_unshard(gw_shard_group *group, const gw_view *into, void *stream);
/* Collective. Starts the gather that gw_shard_group_unshard waits for; call gw_shard_group_unshard later to end it.
 * If nothing is gathered (ranks on one host), *out_work is done at once. The caller releases *out_work, which has the
 * error if the gather fails (PEER_LOST and so on). INVALID_ARGUMENT: a stream on a CPU. */
GW_API gw_status gw_shard_group_unshard_async(gw_shard_group *group, void *stream, gw_work **out_work);
/* Local, does not wait. Drops full values and reduced gradients. Keeps gradients that are not reduced yet.
 * INVALID_ARGUMENT: a stream on a CPU. */
GW_API gw_status gw_shard_group_reshard(gw_shard_group *group, void *stream);
/* Local. *out_view is borrowed until reshard; INVALID_STATE: a full part while sharded, the gradient of a
 * frozen parameter. INVALID_ARGUMENT: the index, the part. A full value that processes share is read-only
 * memory, which a call refuses as its output. */
GW_API gw_status gw_shard_group_view(gw_shard_group *group, size_t index, gw_part part, gw_view *out_view);
/* Local. The same part as a tensor that keeps its memory, for DLPack. The caller releases *out_tensor. After reshard
 * its memory is detached: the library does not reuse it, and the last handle or export frees it. A full value of a
 * shared region is READ_ONLY and follows the parameter after the next update. INVALID_STATE as in
 * gw_shard_group_view. */
GW_API gw_status gw_shard_group_tensor(gw_shard_group *group, size_t index, gw_part part,
                                       gw_tensor **out_tensor);
/* Local. Adds to the full gradient (f64, f32, bf16 or f16; global shape). INVALID_ARGUMENT: another shape or
 * dtype; INVALID_STATE: a frozen parameter. */
GW_API gw_status gw_shard_group_add_gradient(gw_shard_group *group, size_t index, const gw_view *gradient,
                                             void *stream);
/* Collective. Adds the sum over all data ranks to the local gradient and empties the full one. A failure
 * (PEER_LOST, TIMEOUT) breaks the gang. */
GW_API gw_status gw_shard_group_reduce(gw_shard_group *group, void *stream);
/* Collective. Around a caller's own update of GW_PART_VALUE: waits for all readers. INVALID_STATE, on every rank: a
 * rank's group is still unsharded, or an update has begun already. */
GW_API gw_status gw_shard_group_begin_update(gw_shard_group *group, void *stream);
/* Collective. Ends the update: casts to the compute dtype, publishes the values, sets the gradient to zero.
 * INVALID_STATE: no update has begun. */
GW_API gw_status gw_shard_group_end_update(gw_shard_group *group, void *stream);
/* Local. A materialised model of these groups, for optimizer, clip, load and save; it holds references on them. The
 * caller releases *out_model. INVALID_ARGUMENT: none, one twice, groups of different gangs. */
GW_API gw_status gw_module_from_groups(gw_shard_group *const *groups, size_t group_count,
                                       gw_module **out_model);

#ifdef __cplusplus
}
#endif
#endif
