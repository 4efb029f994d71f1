/* Parallelism by wrapping modules: fully sharded and plain data parallel, tensor and context parallel,
 * recomputation; and shard groups, for programs that compute by themselves. Set-up calls are collective over
 * the gangs, and their refusals are agreed. */
#ifndef GANGWAY_PARALLEL_H
#define GANGWAY_PARALLEL_H

#include <gangway/parameter.h>
#include <gangway/pipeline.h>
#include <gangway/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When the values of a parameter group are gathered (unsharded) and dropped (resharded). */
typedef int32_t gw_strategy;
enum gw_strategy_value {
  GW_STRATEGY_INVALID = -1,
  GW_FULL_SHARD = 0,    /* Unshards for each use. */
  GW_SHARD_GRAD_OP = 1, /* Keeps the values after forward. */
  GW_NO_SHARD = 2       /* Plain data parallel. */
};

typedef int32_t gw_recompute_kind;
enum gw_recompute_kind_value {
  GW_RECOMPUTE_INVALID = -1,
  GW_RECOMPUTE_NONE = 0,
  GW_RECOMPUTE_FULL = 1,
  /* Keeps the outputs of linear layers and attention; recomputes those of norms and SwiGLU. */
  GW_RECOMPUTE_SELECTIVE = 2,
  GW_RECOMPUTE_EVERY = 3, /* Each recompute_every-th block. */
  GW_RECOMPUTE_RATIO = 4  /* recompute_ratio of the blocks. */
};

/* How attention goes over the ranks of cp, each of which has a part of the sequence. */
typedef int32_t gw_context_method;
enum gw_context_method_value {
  GW_CONTEXT_INVALID = -1,
  /* Keys and values travel from rank to rank, while each rank computes with those that it has. */
  GW_CONTEXT_RING = 0,
  GW_CONTEXT_ALL_GATHER = 1, /* Each rank gathers all keys and values. */
  GW_CONTEXT_ALL_TO_ALL = 2  /* Each rank has the whole sequence of some heads (Ulysses). */
};

/* How the layers of a model are shared out among the stages of a pipeline. */
typedef int32_t gw_stage_split;
enum gw_stage_split_value {
  GW_STAGE_SPLIT_INVALID = -1,
  /* Each stage has the same number of layers; the first stages have one more where it does not divide. */
  GW_STAGE_SPLIT_EVEN = 0,
  /* The largest stage has as few parameters as possible, with embedding and head counted. */
  GW_STAGE_SPLIT_BY_COST = 1,
  GW_STAGE_SPLIT_GIVEN = 2 /* first_layers. */
};

typedef struct gw_dtype_rule {
  size_t struct_size;
  const gw_ext *next;
  const char *pattern; /* A pattern of whole parameter names (module.h). */
  gw_dtype dtype;
  int32_t reserved;
} gw_dtype_rule;
GW_API void gw_dtype_rule_init(gw_dtype_rule *rule, size_t size);

/* How a parameter group is sharded. */
typedef struct gw_shard_options {
  size_t struct_size;
  const gw_ext *next;
  gw_strategy strategy; /* Default GW_FULL_SHARD. */
  /* 1: full values are dropped after forward; 0: they are kept. Default -1: as the strategy says. k over 1:
   * after forward, values stay split over k consecutive ranks, and backward gathers them from those; k is a
   * divisor of the number of ranks of dp_shard x cp. If ranks share rows in memory, k has the effect of 1.
   * Shard groups and pipelines take -1, 0 and 1; any other value is NOT_SUPPORTED there. */
  int32_t reshard_after_forward;
  gw_dtype param_dtype;  /* The compute dtype: f64, f32, bf16 or f16. Default GW_DTYPE_NONE: the master's. */
  gw_dtype reduce_dtype; /* The dtype of gradients in reductions. Default GW_DTYPE_NONE: f32 (f64 for f64). */
  gw_dtype output_dtype; /* The dtype of the parameter group's outputs. Default GW_DTYPE_NONE: as computed. */
  int32_t cast_forward_inputs; /* 1: forward casts its floating inputs to param_dtype. Default 1. */
  /* 1: shards, their gradients and optimizer state are in pinned memory of the host (gw_memory_use.host), and
   * are copied while the device computes. Results do not change. Streams order work on them like work on
   * memory of the device, and their views name the device. It has no effect on a CPU. Default 0.
   * INVALID_ARGUMENT with GW_NO_SHARD. */
  int32_t cpu_offload;
  int32_t prefetch_forward;  /* How many parameter groups are gathered ahead in forward. Default 1. */
  int32_t prefetch_backward; /* How many parameter groups are gathered ahead in backward. Default 1. */
  /* 0: reduce each microbatch. 1: reduce once. Default -1: as the strategy says. */
  int32_t accumulate_unsharded;
  /* The size of a bucket of gradients under GW_NO_SHARD, in MiB; one rank has a bucket for each group. Default 25. */
  double bucket_cap_mb;
  const gw_dtype_rule *rules; /* param_dtype by name; the last match wins. */
  size_t rule_count;
} gw_shard_options;
GW_API void gw_shard_options_init(gw_shard_options *options, size_t size);

/* How a module is split over the ranks of tp. */
typedef int32_t gw_style;
enum gw_style_value {
  GW_STYLE_INVALID = -1,
  GW_STYLE_REPLICATE = 0,         /* The module is whole on each rank. */
  GW_STYLE_COLWISE = 1,           /* A linear or an embedding, split by its outputs. */
  GW_STYLE_ROWWISE = 2,           /* A linear, split by its inputs; an embedding, split by its rows. */
  GW_STYLE_SEQUENCE_PARALLEL = 3, /* A module that works token by token (a norm), on parts of the sequence. */
  GW_STYLE_PREPARE_INPUT = 4,     /* The first input is redistributed; other rows split the modules inside. */
  GW_STYLE_PREPARE_OUTPUT = 5, /* The first output is redistributed; other rows split the modules inside. */
  GW_STYLE_HEADWISE = 6 /* A module that works head by head (a norm of q or k), on a part of the heads. */
};

/* How a value is distributed over the ranks of tp. */
typedef int32_t gw_placement;
enum gw_placement_value {
  GW_PLACEMENT_INVALID = -1,
  GW_PLACEMENT_DEFAULT = 0,   /* The placement of the style. */
  GW_PLACEMENT_REPLICATE = 1, /* All ranks have the same value, and the same gradient of it. */
  GW_PLACEMENT_VARYING = 2,   /* All ranks have the same value; the gradient is the sum of their gradients. */
  GW_PLACEMENT_PARTIAL = 3,   /* The value is the sum of the ranks' tensors. */
  GW_PLACEMENT_SHARD = 4      /* Each rank has its part of a dim. */
};

/* A row of a tensor parallel plan. */
typedef struct gw_plan_row {
  size_t struct_size;
  const gw_ext *next;
  const char *pattern; /* A pattern of module paths (module.h); "" is the root. */
  gw_style style;
  gw_placement input; /* The placement in which the first input comes. */
  int32_t input_dim;  /* The dim of GW_PLACEMENT_SHARD; -1 is the last dim. */
  /* The placement that the first output is to have. For GW_STYLE_PREPARE_INPUT and _OUTPUT: the placement to
   * which `input` is moved. */
  gw_placement output;
  int32_t output_dim; /* The dim of GW_PLACEMENT_SHARD; -1 is the last dim. */
  int32_t reserved;
} gw_plan_row;
GW_API void gw_plan_row_init(gw_plan_row *row, size_t size);

/* The caller's rows are those of `plan`, then `rows`. For a module, the caller's row takes precedence over
 * the rows of a custom module's own plan and of the plan of a decoder's family. A module has at most one row
 * of the caller's. */
typedef struct gw_tensor_parallel_options {
  size_t struct_size;
  const gw_ext *next;
  /* Rows "pattern -> style", one on each line. Default null: none.
   *
   *   model.layers.*.mlp.up_proj -> colwise
   *   model.layers.*.mlp.down_proj -> rowwise, output Shard(1)
   *
   * The styles are colwise, rowwise, sequence_parallel, headwise, replicate, prepare_input(a, b) and
   * prepare_output(a, b). prepare_input(a, b; c, d; ; e, f) prepares the first, second and fourth input of a
   * module, each of which comes as the first of its two and is taken as the second. The placements are
   * Replicate, Varying, Partial and Shard(dim). '#' begins a comment. */
  const char *plan;
  const gw_plan_row *rows; /* The same as structs. */
  size_t row_count;
  int32_t sequence_parallel; /* 1: norms of a decoder work on parts of the sequence. Default 0. */
  /* 1: the logits of a decoder stay split over the vocabulary. 0: each chunk of them is gathered. Default
   * 1. */
  int32_t loss_parallel;
  /* k over 1: where a sequence is gathered for a linear, or summed into parts, each rank's part is sent in k
   * chunks, and the product of one chunk runs while another is sent. It applies to forward passes of
   * training. k must divide the number of tokens of a part. Default 1. INVALID_ARGUMENT if no row moves a
   * sequence, as rows of sequence_parallel or of the caller can. */
  int32_t overlap_chunks;
  int32_t reserved;
} gw_tensor_parallel_options;
GW_API void gw_tensor_parallel_options_init(gw_tensor_parallel_options *options, size_t size);

typedef struct gw_parallel_options {
  size_t struct_size;
  const gw_ext *next;
  /* The options of each parameter group. Default null: the defaults of gw_shard_options. */
  const gw_shard_options *shard;
  gw_dtype master_dtype;                             /* GW_F32 or GW_F64. Default GW_DTYPE_NONE: f32. */
  gw_recompute_kind recompute;                       /* Default GW_RECOMPUTE_NONE. */
  double recompute_ratio;                            /* Default 1. */
  int32_t recompute_every;                           /* Default 2. */
  gw_context_method context_method;                  /* The method over cp. Default GW_CONTEXT_RING. */
  uint64_t seed;                                     /* The seed of the first values. */
  const gw_tensor_parallel_options *tensor_parallel; /* Over tp. Default null: its defaults. */
  /* Over pp. Default null: "1f1b" with the microbatches of each step. Its microbatches 0 means those of each
   * step. Its shard_actions is the most stages of a rank that are unsharded at a time; 0 means 3. */
  const gw_pipeline_options *pipeline;
  /* For GW_STAGE_SPLIT_GIVEN: the layer that each stage begins with; the first is 0. */
  const int64_t *first_layers;
  size_t first_layer_count;
  gw_stage_split stage_split; /* Default GW_STAGE_SPLIT_EVEN. */
  /* 1: the activations that blocks save lie in pinned memory of the host between forward and backward
   * (gw_memory_use.host). They are copied while the device computes; the device holds those of two blocks at
   * a time. Results do not change. It has no effect on a CPU. Blocks are the modules that recomputation takes
   * as one; a block that is recomputed saves its inputs only. Default 0. */
  int32_t activation_offload;
} gw_parallel_options;
GW_API void gw_parallel_options_init(gw_parallel_options *options, size_t size);

/* Collective. Makes a model of several ranks out of a description. It checks everything, applies tensor and
 * context parallelism (unless the calls below have done so), recomputation and offload of activations, cuts a
 * decoder or a sequential into the stages of pp, makes the parameter groups (of a language model: embedding |
 * each block | norm + head), takes memory and initialises. Call it once, before the optimizer is created.
 * Null gangs are the thread's current ones (gw_gangs_push_current), else one rank.
 *
 * NOT_SUPPORTED: pp over 1 for a model that is no decoder and no sequential. INVALID_ARGUMENT names the
 * option, or the row of the plan. NOT_FOUND: no module matches a row. INVALID_STATE: the call is made a
 * second time or after gw_fully_shard or gw_replicate, or has options for a step that gw_tensor_parallel
 * or gw_context_parallel has done already. MISMATCH, on every rank and with both values: ranks have
 * different models (modules, shapes, options, frozen parameters), options or seeds, or replicas got
 * different first values. Refusals leave model and gangs as they were. */
GW_API gw_status gw_parallelize(gw_module *model, gw_gangs *gangs, const gw_parallel_options *options);

/* Collective. Splits modules over tp as the plan says. This is the first of the pieces of gw_parallelize, for
 * programs that make them one by one: gw_tensor_parallel, gw_context_parallel, gw_recompute, gw_fully_shard
 * or gw_replicate, gw_module_materialize, in this order. A call out of order is INVALID_STATE; the text names
 * the call that is missing or was made too early. Only gw_parallelize makes the stages of pp. Null options
 * are the defaults. On a mesh without tp the call only checks the plan.
 *
 * NOT_FOUND: no module matches a row. INVALID_ARGUMENT names the row and what does not fit. INVALID_STATE:
 * the call comes after gw_fully_shard or gw_replicate. With tp over 1 also NOT_SUPPORTED: there is no row at
 * all; and INVALID_STATE: the call is made a second time. */
GW_API gw_status gw_tensor_parallel(gw_module *model, gw_gangs *gangs,
                                    const gw_tensor_parallel_options *options);
/* Collective. Computes attention over the ranks of cp, each of which has a part of the sequence. On a mesh
 * without cp the call only checks. INVALID_ARGUMENT: a model without attention, or heads that the method
 * cannot divide. INVALID_STATE: the call comes after gw_fully_shard or gw_replicate, or is made twice. */
GW_API gw_status gw_context_parallel(gw_module *model, gw_gangs *gangs, gw_context_method method);
/* Local. Sets which blocks recompute their activations in backward. INVALID_ARGUMENT: an unknown kind,
 * `every` below 1, `ratio` outside of [0, 1]. INVALID_STATE: the call comes after gw_fully_shard,
 * gw_replicate or gw_module_materialize. */
GW_API gw_status gw_recompute(gw_module *model, gw_recompute_kind kind, int32_t every, double ratio);
/* Collective. Makes a parameter group of each module whose whole path matches `pattern` (module.h). "" is the
 * root, and comes last. gw_module_materialize follows. NOT_FOUND: no module matches. INVALID_ARGUMENT names
 * the option, or two matches of which one is inside the other. INVALID_STATE: a module has memory or is a
 * parameter group already, or the mesh has tp or cp and there was no call of gw_tensor_parallel or
 * gw_context_parallel. */
GW_API gw_status gw_fully_shard(gw_module *model, const char *pattern, gw_gangs *gangs,
                                const gw_shard_options *options);
/* Collective. Makes the whole model plain data parallel. gw_module_materialize follows. INVALID_ARGUMENT
 * names the option. INVALID_STATE as in gw_fully_shard. */
GW_API gw_status gw_replicate(gw_module *model, gw_gangs *gangs, const gw_shard_options *options);

/* Collective. From a folder of Hugging Face to a model that trains and generates:
 * gw_decoder_options_from_folder, gw_decoder_create, gw_parallelize with these options (null: their
 * defaults), gw_module_load. Names and shapes of the files are checked before memory is taken. Null gangs are
 * the thread's current ones, else one rank. The caller releases *out_model. It returns what those functions
 * return, on every rank. IO with errno ENOENT: there is no such folder, or a file in it is missing. */
GW_API gw_status gw_model_from_folder(gw_gangs *gangs, const char *folder, const gw_parallel_options *options,
                                      gw_module **out_model);

/* --- shard groups --------------------------------------------------------------------------------------- */

typedef struct gw_shard_group gw_shard_group;

/* Collective. Shards parameters of the caller's own model as one parameter group, and fills them by their
 * initialisers. Null gangs are the thread's current ones, else one rank. Null options are GW_FULL_SHARD.
 * Parameters are called <name>.<parameter> in models and files, or by their own names where `name` is "". The
 * caller releases *out_group. INVALID_ARGUMENT names the option or parameter. MISMATCH: ranks differ in them.
 * CALLER, or the code that it returned: a fill callback. */
GW_API gw_status gw_shard_group_create(gw_gangs *gangs, const char *name,
                                       const gw_parameter_options *parameters, size_t parameter_count,
                                       const gw_shard_options *options, uint64_t seed,
                                       gw_shard_group **out_group);
GW_API gw_shard_group *gw_shard_group_retain(gw_shard_group *group);
GW_API void gw_shard_group_release(gw_shard_group *group);
/* Collective. Gathers the full values. `into` is null, or one view of the caller's memory for each parameter,
 * which gets a stable copy. INVALID_ARGUMENT: a view's shape, or a view that is not floating and row-major.
 * INVALID_STATE: between gw_shard_group_begin_update and gw_shard_group_end_update. */
GW_API gw_status gw_shard_group_unshard(gw_shard_group *group, const gw_view *into, void *stream);
/* Collective. Starts the gather that gw_shard_group_unshard waits for; call gw_shard_group_unshard later to
 * end it. If nothing is gathered (ranks on one host), *out_work is done at once. The caller releases
 * *out_work, which has the error if the gather fails (PEER_LOST and so on). INVALID_ARGUMENT: a stream on a
 * CPU. */
GW_API gw_status gw_shard_group_unshard_async(gw_shard_group *group, void *stream, gw_work **out_work);
/* Local, does not wait. Drops full values and reduced gradients. It keeps gradients that are not reduced yet.
 * INVALID_ARGUMENT: a stream on a CPU. */
GW_API gw_status gw_shard_group_reshard(gw_shard_group *group, void *stream);
/* Local. Gives a view of a part of parameter `index`, borrowed until reshard. A full value that processes
 * share is read-only memory, which a call refuses as its output. A full gradient that was shown counts as
 * written until gw_shard_group_reduce or gw_zero_grad. INVALID_STATE: a full part while the group
 * is sharded, the gradient of a frozen parameter. INVALID_ARGUMENT: the index, the part. */
GW_API gw_status gw_shard_group_view(gw_shard_group *group, size_t index, gw_part part, gw_view *out_view);
/* Local. Gives the same part as a tensor that keeps its memory, for DLPack. The caller releases *out_tensor.
 * After reshard its memory is detached: the library does not reuse it, and the last handle or export frees
 * it. A full value of a shared region is READ_ONLY, and follows the parameter after the next update.
 * INVALID_STATE as in gw_shard_group_view. */
GW_API gw_status gw_shard_group_tensor(gw_shard_group *group, size_t index, gw_part part,
                                       gw_tensor **out_tensor);
/* Local. Adds `gradient` (f64, f32, bf16 or f16, of the global shape) to the full gradient of parameter
 * `index`. INVALID_ARGUMENT: another shape or dtype. INVALID_STATE: a frozen parameter. */
GW_API gw_status gw_shard_group_add_gradient(gw_shard_group *group, size_t index, const gw_view *gradient,
                                             void *stream);
/* Collective. Adds the sum of the full gradients over all data ranks to the local gradient, and empties the
 * full one. Until then steps, gw_clip_grad_norm and gw_shard_group_begin_update are INVALID_STATE on every
 * rank; gw_zero_grad drops full gradients that are not wanted. A failure (PEER_LOST, TIMEOUT) breaks the
 * gang. */
GW_API gw_status gw_shard_group_reduce(gw_shard_group *group, void *stream);
/* Collective. Begins a caller's own update of GW_PART_VALUE; waits for all readers. INVALID_STATE, on every
 * rank: a rank's group is still unsharded, has full gradients that are not reduced, or an update has begun
 * already. */
GW_API gw_status gw_shard_group_begin_update(gw_shard_group *group, void *stream);
/* Collective. Ends the update: casts to the compute dtype, publishes the values, and sets the gradient to
 * zero. INVALID_STATE: no update has begun. */
GW_API gw_status gw_shard_group_end_update(gw_shard_group *group, void *stream);
/* Local. Makes a materialised model of these groups, for optimizer, clip, load and save. It holds references
 * on them. The caller releases *out_model. INVALID_ARGUMENT: no group, one twice, two with
 * parameters of one name, groups of different gangs. */
GW_API gw_status gw_module_from_groups(gw_shard_group *const *groups, size_t group_count,
                                       gw_module **out_model);

#ifdef __cplusplus
}
#endif
#endif
