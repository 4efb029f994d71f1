/* What a training would need, before it runs. */
#ifndef GANGWAY_PLAN_H
#define GANGWAY_PLAN_H

#include <gangway/fp8.h>
#include <gangway/layers.h>
#include <gangway/lora.h>
#include <gangway/mesh.h>
#include <gangway/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_plan_options {
  size_t struct_size;
  const gw_ext *next;
  const gw_decoder_options *decoder;   /* The model. Required. */
  const gw_mesh_options *mesh;         /* Default null: all ranks are dp_shard. */
  const gw_parallel_options *parallel; /* As for gw_parallelize. Default null: its defaults. */
  int32_t ranks;                       /* At least 1. Default 1. */
  int32_t microbatches;                /* Of a step. Default 0: 1; with pp, twice pp. */
  int64_t rows;                        /* Of a microbatch of a rank. Default 1. */
  int64_t sequence;                    /* Tokens of a row. Default 0: as many as the decoder takes. */
  gw_dtype moment_dtype;               /* Of AdamW's averages, without `optimizer`. Default GW_F32. */
  int32_t one_host; /* 1: processes of one CPU host, which share gathered weights. Default 0: on GPUs. */
  const gw_lora_options *lora; /* As for gw_lora_apply. Default null: the whole model is trained. */
  const gw_fp8_options *fp8;   /* As for gw_fp8_apply. Default null: no layer computes in FP8. */
  /* The kind of the optimizer and its options, as for gw_optimizer_create, whose states are counted. Default
   * null: AdamW with averages in moment_dtype, which counts for this default alone. */
  const char *optimizer;
  const char *const *option_names;
  const char *const *option_values;
  size_t option_count;
} gw_plan_options;
GW_API void gw_plan_options_init(gw_plan_options *options, size_t size);

/* Local. Gives the bytes of the rank that uses the most memory, and its number in *out_rank, for training
 * with the optimizer. The numbers are those of tensors, and exact: the library builds the model, splits it
 * and trains it on a device without memory, where the same code as in a real run counts the same bytes.
 * Not counted: the program and its libraries, code and panels of products, messages of collectives that
 * are staged, batches that are read ahead, and what the allocator keeps. A process on a CPU took 2 to 17 %
 * more than the sum, most with tp. It takes some seconds for large models. Null `out_rank` is skipped.
 * INVALID_ARGUMENT: what gw_decoder_create, gw_lora_apply, gw_fp8_apply, gw_gangs_create, gw_parallelize,
 * gw_optimizer_create or gw_train_step would refuse. NOT_FOUND: no layer matches a pattern of `fp8` or
 * `lora`. */
GW_API gw_status gw_plan_memory(const gw_plan_options *options, gw_memory_use *memory, int32_t *out_rank);

#ifdef __cplusplus
}
#endif
#endif
