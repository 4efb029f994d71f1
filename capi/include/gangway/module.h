/* Modules: what a model is made of, with Hugging Face's names and shapes. A module describes until gw_parallelize or
 * gw_module_materialize gives it memory; parameters are then filled shard by shard. One thread at a time per model.
 *
 * `stream`, here and in all headers that compute with a model: null for the rank's own. Calls on a model may use one stream
 * after another: each comes after all that is on the stream of the call before. A stream that was passed must live until the
 * gang is released. */
#ifndef GANGWAY_MODULE_H
#define GANGWAY_MODULE_H

#include <gangway/mesh.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_module gw_module;

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

/* Collective. Compares the values of ranks that must hold the same: whole values under GW_NO_SHARD and gw_replicate, own
 * rows over dp_replicate. gw_parallelize, gw_module_materialize, gw_shard_group_create and gw_module_load do so by
 * themselves; between steps this finds values that a rank has changed alone. Ranks read and send checksums; without
 * replicas nothing. MISMATCH, on every rank, names the first element that differs, with both values and ranks; the gangs
 * work on. INVALID_STATE: a model without memory. */
GW_API gw_status gw_module_check_replicas(gw_module *model, void *stream);

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

/* Local. Sets up a gw_memory_use: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_memory_use_init(gw_memory_use *memory, size_t size);
/* Local. Fills *memory with this rank's bytes. INVALID_STATE before gw_module_materialize. */
GW_API gw_status gw_module_memory(gw_module *model, gw_memory_use *memory);

#ifdef __cplusplus
}
#endif
#endif
