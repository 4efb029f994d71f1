/* Modules: what a model is made of, with Hugging Face's names and shapes. A module is a description until
 * gw_parallelize or gw_module_materialize gives it memory; its parameters are then filled shard by shard.
 *
 * One thread at a time may be in a call on a model, its parameters, frames, optimizers and metrics. What
 * another thread calls meanwhile is refused with BUSY and does nothing; other ranks are not told of that. A
 * callback may call the library on the thread on which it runs.
 *
 * `stream`, here and in all headers that compute with a model: null is the rank's own. Calls on a model may
 * use one stream after another; each comes after all that is on the stream of the call before. A stream that
 * was passed must live until the gang is released.
 *
 * Patterns, of parameter names and of module paths, match the whole name. '*' stands for any characters but
 * dots, and "**" for any characters; a part "**" with its dot may also stand for nothing. So "*.bias" matches
 * only a "bias" one level down, "**.bias" every one, and "model.**" all that is below "model". */
#ifndef GANGWAY_MODULE_H
#define GANGWAY_MODULE_H

#include <gangway/mesh.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_module gw_module;

GW_API gw_module *gw_module_retain(gw_module *model);
GW_API void gw_module_release(gw_module *model);
/* Collective over `gangs` (null: the thread's current ones, else one rank). Gives memory and first values to
 * a model that is described or wrapped; gw_parallelize does it by itself. `master_dtype` is GW_F32 or GW_F64;
 * GW_DTYPE_NONE is f32. INVALID_STATE: a second time, bound to other gangs, a parameter in no parameter group
 * on several ranks. INVALID_ARGUMENT: a dtype. MISMATCH, with both values: ranks have different models,
 * options or seeds. CALLER, or the code that it returned: a fill callback. */
GW_API gw_status gw_module_materialize(gw_module *model, gw_gangs *gangs, uint64_t seed,
                                       gw_dtype master_dtype);
/* Local. Freezes the parameters whose whole name matches `pattern`: they have no gradient and no optimizer
 * state. NOT_FOUND: no parameter matches. INVALID_STATE: after gw_parallelize or gw_module_materialize, when
 * their gradients have memory. */
GW_API gw_status gw_module_freeze(gw_module *model, const char *pattern);

/* Collective. Compares the values of ranks that must hold the same: whole values under GW_NO_SHARD and
 * gw_replicate, own rows over dp_replicate. gw_parallelize, gw_module_materialize, gw_shard_group_create and
 * gw_module_load do so by themselves; between steps this call finds values that a rank has changed alone,
 * which gw_train_step and gw_optimizer_step find by checksums of the trainable values. Ranks read their
 * values and send checksums; without replicas the call does nothing. MISMATCH, on every rank, names the first
 * element that differs, with both values and ranks; the gangs work on. INVALID_STATE: a model that has no
 * memory. */
GW_API gw_status gw_module_check_replicas(gw_module *model, void *stream);

/* A model's memory on this rank, in bytes. For memory whose size changes during a step (from `activations` to
 * `temporaries`) it is the peak. */
typedef struct gw_memory_use {
  size_t struct_size;
  const gw_ext *next;
  uint64_t master;          /* Private own rows in the master dtype. */
  uint64_t region_rows;     /* Own rows in regions that ranks share. */
  uint64_t gradient_shards; /* The gradients of own rows. */
  uint64_t gathered;        /* Buffers of gathered weights; 0 where ranks share regions. */
  uint64_t full_gradients;  /* Buffers of whole gradients. */
  uint64_t activations;     /* What forwards save for their backwards. */
  uint64_t gradients;       /* The gradients of activations. */
  uint64_t temporaries;     /* Temporary tensors, and tables that modules keep. */
  uint64_t copies;          /* Private own rows in the compute dtype. */
  uint64_t optimizer;       /* The state of the optimizers that this model has at present. */
  /* In memory of the host and in none of the above: the shards, gradients and optimizer state that
   * cpu_offload keeps there, the most bytes of activations that activation_offload keeps there at a time, and
   * the copies that gw_checkpoints keeps. */
  uint64_t host;
} gw_memory_use;
GW_API void gw_memory_use_init(gw_memory_use *memory, size_t size);
/* Local. Fills *memory with this rank's bytes. INVALID_STATE: before gw_module_materialize. */
GW_API gw_status gw_module_memory(gw_module *model, gw_memory_use *memory);

#ifdef __cplusplus
}
#endif
#endif
