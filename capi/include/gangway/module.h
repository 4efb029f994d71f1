/* Modules: what a model is made of, with Hugging Face's names and shapes. A module describes until gw_parallelize or
 * gw_module_materialize gives it memory; parameters are then filled shard by shard. One thread at a time per model.
 *
 * `stream`: null for the rank's own. Calls on a model may use one stream after another: each comes after all that is on
 * the stream of the call before. A stream that was passed must live until the gang is released. A view of a parameter shows
 * what the rank's own stream has made. */
#ifndef GANGWAY_MODULE_H
#define GANGWAY_MODULE_H

#include <gangway/mesh.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_module gw_module;
typedef struct gw_parameter gw_parameter;
/* The activations of one forward, kept for its backward. */
typedef struct gw_frame gw_frame;
typedef struct gw_optimizer gw_optimizer;

/* --- built-in layers (all local: they describe) ------------------------------------------------------------------- */

/* Fields as in a Hugging Face config.json. */
typedef struct gw_llama_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t vocab;         /* 256 */
  int64_t dim;           /* 256; hidden_size */
  int64_t layers;        /* 4 */
  int64_t heads;         /* 8 */
  int64_t kv_heads;      /* 0: heads */
  int64_t head_dim;      /* 0: dim / heads */
  int64_t ffn;           /* 0: 8/3 dim up to a multiple of 32; intermediate_size */
  int64_t max_positions; /* 2048 */
  double eps;            /* 1e-5 */
  double rope_theta;     /* 10000 */
  double rope_factor;    /* 1: none; else Llama-3 scaling with the next three */
  double rope_low_frequency_factor;
  double rope_high_frequency_factor;
  int64_t rope_original_positions;
  double initializer_range; /* 0.02 */
  int32_t qkv_bias;         /* Qwen2 */
  int32_t out_bias;         /* o_proj.bias */
  int32_t mlp_bias;
  int32_t tied; /* lm_head.weight is model.embed_tokens.weight */
} gw_llama_options;

typedef struct gw_attention_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t dim;      /* required */
  int64_t heads;    /* required */
  int64_t kv_heads; /* 0: heads */
  int64_t head_dim; /* 0: dim / heads */
  double rope_theta;
  double initializer_range;
  int32_t qkv_bias;
  int32_t out_bias;
  int32_t causal; /* 1 */
  int32_t reserved;
} gw_attention_options;

/* Local. Sets up a gw_llama_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_llama_options_init(gw_llama_options *options, size_t size);
/* Local. inputs {tokens i64 [B, S]} -> logits [B, S, vocab]; with labels i64 [B, S], already shifted -> {loss
 * sum, weight}. The caller releases *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_llama_create(const gw_llama_options *options, gw_module **out_model);
/* Local. Fills *options, which gw_llama_options_init has set up, from folder/config.json as transformers writes it for the
 * families llama, qwen2 and mistral:
 *
 *   config.json                                 field                 if it is missing or null
 *   vocab_size                                  vocab                 CORRUPT
 *   hidden_size                                 dim                   CORRUPT
 *   num_hidden_layers                           layers                CORRUPT
 *   num_attention_heads                         heads                 CORRUPT
 *   num_key_value_heads                         kv_heads              heads; qwen2: 32, mistral: 8
 *   head_dim                                    head_dim              hidden_size / num_attention_heads
 *   intermediate_size                           ffn                   CORRUPT
 *   max_position_embeddings                     max_positions         2048; qwen2: 32768, mistral: 131072
 *   rms_norm_eps                                eps                   1e-6
 *   rope_theta                                  rope_theta            10000
 *   rope_scaling: rope_type (or type) llama3:
 *     factor                                    rope_factor           CORRUPT; without scaling: 1
 *     low_freq_factor                           rope_low_frequency_factor, likewise
 *     high_freq_factor                          rope_high_frequency_factor
 *     original_max_position_embeddings          rope_original_positions
 *   rope_parameters                             rope_theta and rope_scaling in one, as since transformers 5
 *   initializer_range                           initializer_range     0.02
 *   attention_bias                              qkv_bias, out_bias    0; qwen2: always qkv_bias alone
 *   attention_out_bias (of this library)        out_bias              attention_bias
 *   mlp_bias                                    mlp_bias              0
 *   tie_word_embeddings                         tied                  0
 *
 * NOT_SUPPORTED, with the value: another model_type, rope_type or hidden_act (silu, swish), attention_dropout not 0,
 * partial_rotary_factor not 1, a sliding_window in use that is below max_position_embeddings, a quantization_config. All
 * other fields are ignored; the dtype of the files is theirs. CORRUPT: a value of the wrong kind or out of its range. IO.
 * After a failure *options is as before. */
GW_API gw_status gw_llama_options_from_folder(const char *folder, gw_llama_options *options);
/* Local. y = x W^T + b: x [..., input_dim] -> [..., output_dim]; weight [output_dim, input_dim]. The caller
 * releases *out_model. INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_linear_create(int64_t input_dim, int64_t output_dim, int32_t bias, gw_module **out_model);
/* Local. ids i64 [...] -> rows of weight [rows, dim]: [..., dim]. The caller releases *out_model.
 * INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_embedding_create(int64_t rows, int64_t dim, gw_module **out_model);
/* Local. {x} or {x, residual}, each [..., dim] -> {y, sum}. The caller releases *out_model. INVALID_ARGUMENT:
 * dim or eps not above 0. */
GW_API gw_status gw_rmsnorm_create(int64_t dim, double eps, gw_module **out_model);
/* Local. Sets up a gw_attention_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_attention_options_init(gw_attention_options *options, size_t size);
/* Local. x [B, S, dim] -> the same. The caller releases *out_model. INVALID_ARGUMENT names the field and the
 * rule. */
GW_API gw_status gw_attention_create(const gw_attention_options *options, gw_module **out_model);
/* Local. SwiGLU: x [..., dim] -> the same, by way of ffn. The caller releases *out_model. INVALID_ARGUMENT: a
 * dim below 1. */
GW_API gw_status gw_mlp_create(int64_t dim, int64_t ffn, int32_t bias, gw_module **out_model);
/* Local. Pre-norm block: norm, attention, norm, SwiGLU; x [B, S, dim] -> the same. The caller releases
 * *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_block_create(const gw_attention_options *attention, int64_t ffn, double eps,
                                 gw_module **out_model);
/* Local. One after the other, children "0", "1", ...; keeps references. The caller releases *out_model.
 * INVALID_ARGUMENT: none, or one twice; INVALID_STATE: one that is part of another module, or bound to gangs. */
GW_API gw_status gw_sequential_create(gw_module *const *models, size_t model_count, gw_module **out_model);

/* --- own compute as a module --------------------------------------------------------------------------------------- */

typedef int32_t gw_phase;
enum gw_phase_value {
  GW_PHASE_INVALID = -1,
  GW_PHASE_SHAPES = 0,
  GW_PHASE_FORWARD = 1,
  GW_PHASE_BACKWARD_INPUT = 2,
  GW_PHASE_BACKWARD_WEIGHT = 3
};

typedef int32_t gw_init_kind;
enum gw_init_kind_value {
  GW_INIT_INVALID = -1,
  GW_INIT_NORMAL = 0,
  GW_INIT_ZEROS = 1,
  GW_INIT_ONES = 2,
  GW_INIT_FILL = 3
};

typedef struct gw_init_options {
  size_t struct_size;
  const gw_ext *next;
  gw_init_kind kind; /* GW_INIT_NORMAL */
  int32_t reserved;
  double deviation; /* normal: 0.02 */
  /* GW_INIT_FILL: writes rows [first_row, last_row) of dim 0, row-major: `count` elements of `dtype`, the parameter's
   * master. */
  gw_status (*fill)(void *user, int64_t first_row, int64_t last_row, void *out_data, size_t count,
                    gw_dtype dtype);
  void *user;
  gw_free_fn free_user;
} gw_init_options;
/* Local. Sets up a gw_init_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_init_options_init(gw_init_options *options, size_t size);

/* One parameter of a custom module or a shard group. */
typedef struct gw_parameter_options {
  size_t struct_size;
  const gw_ext *next;
  const char *name; /* required */
  int64_t dims[8];  /* global shape; a scalar is [1] */
  int32_t ndim;
  gw_dtype dtype; /* shard groups: master dtype; GW_DTYPE_NONE: f32. Custom modules: the model's */
  int32_t frozen; /* 1: no gradient */
  int32_t reserved;
  const gw_init_options *initializer; /* null: normal, 0.02 */
} gw_parameter_options;
/* Local. Sets up a gw_parameter_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_parameter_options_init(gw_parameter_options *options, size_t size);

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

/* --- life ---------------------------------------------------------------------------------------------------------- */

/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_module *gw_module_retain(gw_module *model);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_module_release(gw_module *model);
/* Collective over `gangs` (null: the thread's current ones, else one rank). Gives memory and first values to a described or wrapped model;
 * gw_parallelize does it by itself. `master_dtype`: GW_F32 or GW_F64 (GW_DTYPE_NONE: f32). INVALID_STATE: a
 * second time, bound to other gangs, a parameter in no unit on several ranks; INVALID_ARGUMENT: a dtype; MISMATCH, with
 * both values: ranks have different models, options or seeds; CALLER or what it returned: a fill callback. */
GW_API gw_status gw_module_materialize(gw_module *model, gw_gangs *gangs, uint64_t seed,
                                       gw_dtype master_dtype);
/* Local. Parameters whose whole name matches are frozen: no gradient, no optimizer state. NOT_FOUND: none does.
 * INVALID_STATE: after gw_parallelize or gw_module_materialize, when their gradients have memory. */
GW_API gw_status gw_module_freeze(gw_module *model, const char *pattern);

/* --- forward and backward by hand ---------------------------------------------------------------------------------- */

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

/* --- looking in ---------------------------------------------------------------------------------------------------- */

typedef int32_t gw_part;
enum gw_part_value {
  GW_PART_INVALID = -1,
  GW_PART_VALUE = 0,      /* own rows of the master */
  GW_PART_GRADIENT = 1,   /* own rows of the gradient */
  GW_PART_FULL_VALUE = 2, /* while unsharded */
  GW_PART_FULL_GRADIENT =
      3 /* of a shard group while unsharded; of a model from a backward to its reduction */
};

typedef struct gw_parameter_info {
  size_t struct_size;
  const gw_ext *next;
  const char *name;   /* borrowed until the release of the parameter */
  const char *layout; /* like "dp_shard: Shard(0)"; borrowed likewise */
  int64_t dims[8];    /* global */
  int32_t ndim;
  gw_dtype dtype; /* of the master */
  int32_t is_buffer;
  int32_t trainable;
  int64_t first_row; /* own rows of dim 0 */
  int64_t last_row;
} gw_parameter_info;

/* Bytes of this rank; of what comes and goes (activations on) the most that there was. */
typedef struct gw_memory_use {
  size_t struct_size;
  const gw_ext *next;
  uint64_t master;
  uint64_t region_rows;
  uint64_t gradient_shards;
  uint64_t gathered;
  uint64_t full_gradients;
  uint64_t activations;
  uint64_t gradients;
  uint64_t temporaries;
  uint64_t copies;    /* private own rows in the compute dtype */
  uint64_t optimizer; /* state of the optimizers that this model has at present */
  /* In memory of the host and in none of the above: shards, gradients and optimizer state that cpu_offload keeps there, and
   * the most bytes of activations that activation_offload does. */
  uint64_t host;
} gw_memory_use;

/* Local. How many parameters the model has; tied ones count once. INVALID_ARGUMENT: null. */
GW_API gw_status gw_module_parameter_count(const gw_module *model, size_t *out_count);
/* Local. Parameter `index`; the caller releases *out_parameter. INVALID_ARGUMENT: an index that is not below
 * the count. */
GW_API gw_status gw_module_parameter(gw_module *model, size_t index, gw_parameter **out_parameter);
/* Local. By whole name, aliases of tied parameters too; the caller releases *out_parameter. NOT_FOUND. */
GW_API gw_status gw_module_find_parameter(gw_module *model, const char *name, gw_parameter **out_parameter);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_parameter *gw_parameter_retain(gw_parameter *parameter);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_parameter_release(gw_parameter *parameter);
/* Local. Sets up a gw_parameter_info: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_parameter_info_init(gw_parameter_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: null, or a struct_size that is too small. */
GW_API gw_status gw_parameter_describe(gw_parameter *parameter, gw_parameter_info *info);
/* Local. *out_view is borrowed until the release of the parameter; its shape too. INVALID_STATE: a full part
 * while sharded, the gradient of a frozen parameter, a model without memory. */
GW_API gw_status gw_parameter_view(gw_parameter *parameter, gw_part part, gw_view *out_view);
/* Local. The same part with a handle that keeps its memory: for DLPack. The caller releases *out_tensor. The
 * memory is never used for something else while the handle or an export of it lives; a full part is detached
 * from the parameter at reshard. A full value of a shared region is READ_ONLY and follows the parameter after
 * the next update. INVALID_STATE as in gw_parameter_view. */
GW_API gw_status gw_parameter_tensor(gw_parameter *parameter, gw_part part, gw_tensor **out_tensor);
/* Local. Own rows of an optimizer's state: "exp_avg", "exp_avg_sq", "momentum"; *out_view is borrowed until the
 * release of either handle. NOT_FOUND. */
GW_API gw_status gw_parameter_state(gw_parameter *parameter, const gw_optimizer *optimizer, const char *name,
                                    gw_view *out_view);
/* Local. The same state with a handle that keeps its memory; the caller releases *out_tensor. NOT_FOUND. */
GW_API gw_status gw_parameter_state_tensor(gw_parameter *parameter, const gw_optimizer *optimizer,
                                           const char *name, gw_tensor **out_tensor);
/* Collective. The whole value on every rank, in the master's dtype; the caller releases *out_tensor.
 * INVALID_STATE: a model without memory. */
GW_API gw_status gw_parameter_gather(gw_parameter *parameter, void *stream, gw_tensor **out_tensor);
/* Collective. The whole gradient on every rank; the caller releases *out_tensor. INVALID_STATE: a frozen
 * parameter, a model without memory. */
GW_API gw_status gw_parameter_gather_gradient(gw_parameter *parameter, void *stream, gw_tensor **out_tensor);
/* Collective. New values from `values` (f64, f32, bf16 or f16; on the host or the device), which have the global shape,
 * or are this rank's rows alone, as gw_parameter_view shows them. Each rank may give either. INVALID_ARGUMENT, on every rank: a rank's shape or
 * dtype. INVALID_STATE: a forward awaits its backward, a unit is unsharded, between begin_update and end_update. */
GW_API gw_status gw_parameter_assign(gw_parameter *parameter, const gw_view *values, void *stream);
/* Collective. Compares the values of ranks that must hold the same: whole values under GW_NO_SHARD and gw_replicate, own
 * rows over dp_replicate. gw_parallelize, gw_module_materialize, gw_shard_group_create and gw_module_load do so by
 * themselves; between steps this finds values that a rank has changed alone. Ranks read and send checksums; without
 * replicas nothing. MISMATCH, on every rank, names the first element that differs, with both values and ranks; the gangs
 * work on. INVALID_STATE: a model without memory. */
GW_API gw_status gw_module_check_replicas(gw_module *model, void *stream);
/* Local. Sets up a gw_memory_use: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_memory_use_init(gw_memory_use *memory, size_t size);
/* Local. Fills *memory with this rank's bytes. INVALID_STATE before gw_module_materialize. */
GW_API gw_status gw_module_memory(gw_module *model, gw_memory_use *memory);

/* --- files --------------------------------------------------------------------------------------------------------- */

typedef struct gw_save_options {
  size_t struct_size;
  const gw_ext *next;
  gw_dtype dtype; /* GW_DTYPE_NONE: the master's */
  int32_t reserved;
} gw_save_options;
/* Local. Sets up a gw_save_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_save_options_init(gw_save_options *options, size_t size);
/* Collective. Writes folder/model.safetensors with Hugging Face's names and, for a Llama, folder/config.json. Makes the
 * folder if it is missing.
 *
 * A save is one commit. Whenever it ends or is killed, and on every rank and file system with symbolic and hard links, each
 * reader of the folder finds all files of the earlier checkpoint or all files of the new one. The new files replace an
 * index (model.safetensors.index.json) and the files that it names (model-00001-of-00002.safetensors and so on), too; all
 * else in the folder stays. Until the commit the new files lie in folder/.gangway-save, on the same file system, so it
 * needs room for both. The next save removes what a killed one left.
 *
 * INVALID_ARGUMENT: a dtype that is not floating, an empty name; INVALID_STATE: a model without memory, another save into
 * the folder at work; IO, on every rank: a full disk, a limit on file sizes (which is no signal here) and so on. */
GW_API gw_status gw_module_save(gw_module *model, const char *folder, const gw_save_options *options);

typedef struct gw_load_options {
  size_t struct_size;
  const gw_ext *next;
  int32_t
      ignore_extra; /* 1: tensors that the model has no place for are no error, nor is another lm_head.weight than
                            model.embed_tokens.weight for a model that ties them */
  int32_t ignore_config; /* 1: a folder's config.json may describe another model */
} gw_load_options;
/* Local. Sets up a gw_load_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_load_options_init(gw_load_options *options, size_t size);
/* Collective, on any mesh. Values from a safetensors file, or from a folder: its model.safetensors, else the files that
 * its model.safetensors.index.json names. Files may hold f64, f32, bf16 or f16: each value is converted to the master's
 * dtype, and rounded to the nearest where that is narrower. Each rank reads its own rows alone. All ranks must open the
 * same files: they compare size, time of change and a hash of each header (on one host the inode, too).
 *
 * For a Llama, a folder's config.json must describe the same function: all fields of the table at
 * gw_llama_options_from_folder but max_positions and initializer_range.
 *
 * Every rank returns the first refusal, and values are as before: NOT_FOUND: a parameter is missing in the files.
 * INVALID_ARGUMENT: a shape or dtype, a tensor that the model has no place for, two values for a tied parameter, another
 * config.json, each with both values. MISMATCH: ranks opened different files. CORRUPT, NOT_SUPPORTED: what a file says. IO:
 * a file is missing (errno ENOENT). Once reading has begun, IO (a file ends early or was changed meanwhile) leaves some
 * values new and some old; the gangs work on. */
GW_API gw_status gw_module_load(gw_module *model, const char *path, const gw_load_options *options);

#ifdef __cplusplus
}
#endif
#endif
