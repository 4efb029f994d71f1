/* Parameters: how a program describes one (for custom modules and shard groups), and how it reads and sets
 * the values, gradients and optimizer state of a model. A view of a parameter shows what the rank's own
 * stream has made. module.h says which threads. */
#ifndef GANGWAY_PARAMETER_H
#define GANGWAY_PARAMETER_H

#include <gangway/module.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_parameter gw_parameter;
typedef struct gw_optimizer gw_optimizer;

/* --- describing a parameter ----------------------------------------------------------------------------- */

typedef int32_t gw_init_kind;
enum gw_init_kind_value {
  GW_INIT_INVALID = -1,
  GW_INIT_NORMAL = 0,
  GW_INIT_ZEROS = 1,
  GW_INIT_ONES = 2,
  GW_INIT_FILL = 3
};

/* The first values of a parameter. */
typedef struct gw_init_options {
  size_t struct_size;
  const gw_ext *next;
  gw_init_kind kind; /* Default GW_INIT_NORMAL. */
  int32_t reserved;
  double deviation; /* The standard deviation of GW_INIT_NORMAL. Default 0.02. */
  /* For GW_INIT_FILL: writes rows [first_row, last_row) of dim 0, row-major. out_data has room for `count`
   * elements of `dtype`, the parameter's master dtype. */
  gw_status (*fill)(void *user, int64_t first_row, int64_t last_row, void *out_data, size_t count,
                    gw_dtype dtype);
  void *user;
  gw_free_fn free_user;
} gw_init_options;
GW_API void gw_init_options_init(gw_init_options *options, size_t size);

/* One parameter of a custom module or a shard group. */
typedef struct gw_parameter_options {
  size_t struct_size;
  const gw_ext *next;
  const char *name; /* Required. */
  int64_t dims[8];  /* The global shape; a scalar is [1]. */
  int32_t ndim;
  /* The master dtype in a shard group; GW_DTYPE_NONE is f32. A custom module has the model's. */
  gw_dtype dtype;
  int32_t frozen; /* 1: it has no gradient. Default 0. */
  /* In a shard group, 1: a buffer, such as a running mean. It is frozen, and files keep it in its own dtype,
   * whatever dtype a save asks for. Default 0. */
  int32_t is_buffer;
  const gw_init_options *initializer; /* Default null: normal, with deviation 0.02. */
  /* In a shard group: further names of the parameter, which another module of the caller's shares. Models find
   * it under each, a save writes it under each, and a load takes it from any. Default 0 names. */
  const char *const *aliases;
  size_t alias_count;
} gw_parameter_options;
GW_API void gw_parameter_options_init(gw_parameter_options *options, size_t size);

/* --- reading and setting -------------------------------------------------------------------------------- */

typedef int32_t gw_part;
enum gw_part_value {
  GW_PART_INVALID = -1,
  GW_PART_VALUE = 0,      /* This rank's own rows of the master. */
  GW_PART_GRADIENT = 1,   /* This rank's own rows of the gradient. */
  GW_PART_FULL_VALUE = 2, /* The whole value, while the parameter is unsharded. */
  /* The whole gradient: of a shard group while it is unsharded; of a model from a backward to its
   * reduction. */
  GW_PART_FULL_GRADIENT = 3
};

typedef struct gw_parameter_info {
  size_t struct_size;
  const gw_ext *next;
  const char *name;   /* Borrowed until the release of the parameter. */
  const char *layout; /* Text like "dp_shard: Shard(0)", borrowed likewise. */
  int64_t dims[8];    /* The global shape. */
  int32_t ndim;
  gw_dtype dtype; /* The dtype of the master. */
  int32_t is_buffer;
  int32_t trainable;
  int64_t first_row; /* This rank's own rows of dim 0 are [first_row, last_row). */
  int64_t last_row;
} gw_parameter_info;

/* Local. Gives the number of parameters of the model; tied ones count once. INVALID_ARGUMENT: null. */
GW_API gw_status gw_module_parameter_count(const gw_module *model, size_t *out_count);
/* Local. Gives parameter `index`. The caller releases *out_parameter. INVALID_ARGUMENT: an index that is not
 * below the count. */
GW_API gw_status gw_module_parameter(gw_module *model, size_t index, gw_parameter **out_parameter);
/* Local. Finds a parameter by its whole name; aliases of tied parameters are found, too. The caller releases
 * *out_parameter. NOT_FOUND: no parameter has the name. */
GW_API gw_status gw_module_find_parameter(gw_module *model, const char *name, gw_parameter **out_parameter);
GW_API gw_parameter *gw_parameter_retain(gw_parameter *parameter);
GW_API void gw_parameter_release(gw_parameter *parameter);
GW_API void gw_parameter_info_init(gw_parameter_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: null, or a struct_size that is too small. */
GW_API gw_status gw_parameter_describe(gw_parameter *parameter, gw_parameter_info *info);
/* Local. Gives a view of a part of the parameter. *out_view and its shape are borrowed until the release of
 * the parameter. INVALID_STATE: a full part while the parameter is sharded, the gradient of a frozen
 * parameter, a model without memory. */
GW_API gw_status gw_parameter_view(gw_parameter *parameter, gw_part part, gw_view *out_view);
/* Local. Gives the same part as a tensor that keeps its memory, for DLPack. The caller releases *out_tensor.
 * The memory is never used for anything else while the tensor or an export of it lives. A full part is
 * detached from the parameter at reshard. A full value of a shared region is READ_ONLY, and follows the
 * parameter after the next update. On GPUs whose memory NCCL registers (GANGWAY_NCCL_REGISTER is not 0),
 * release a full part and its exports after reshard, before the model computes again: until then steps,
 * forwards and backwards are INVALID_STATE on every rank. INVALID_STATE as in gw_parameter_view. */
GW_API gw_status gw_parameter_tensor(gw_parameter *parameter, gw_part part, gw_tensor **out_tensor);
/* Local. Gives a view of this rank's own rows of an optimizer's state: "exp_avg", "exp_avg_sq" or "momentum".
 * *out_view is borrowed until the release of either handle. NOT_FOUND: the optimizer has no such state for
 * the parameter. */
GW_API gw_status gw_parameter_state(gw_parameter *parameter, const gw_optimizer *optimizer, const char *name,
                                    gw_view *out_view);
/* Local. Gives the same state as a tensor that keeps its memory. The caller releases *out_tensor. NOT_FOUND
 * as in gw_parameter_state. */
GW_API gw_status gw_parameter_state_tensor(gw_parameter *parameter, const gw_optimizer *optimizer,
                                           const char *name, gw_tensor **out_tensor);
/* Collective. Gives every rank the whole value, in the master's dtype. The caller releases *out_tensor.
 * INVALID_STATE: a model without memory. */
GW_API gw_status gw_parameter_gather(gw_parameter *parameter, void *stream, gw_tensor **out_tensor);
/* Collective. Gives every rank the whole gradient. The caller releases *out_tensor. INVALID_STATE: a frozen
 * parameter, a model without memory. */
GW_API gw_status gw_parameter_gather_gradient(gw_parameter *parameter, void *stream, gw_tensor **out_tensor);
/* Collective. Sets new values from `values` (f64, f32, bf16 or f16, on the host or the device). They have the
 * global shape, or are this rank's rows alone, as gw_parameter_view shows them; each rank may give either.
 * INVALID_ARGUMENT, on every rank: a rank's shape or dtype. INVALID_STATE: a forward awaits its backward, a
 * parameter group is unsharded, or an update is between gw_shard_group_begin_update and
 * gw_shard_group_end_update. */
GW_API gw_status gw_parameter_assign(gw_parameter *parameter, const gw_view *values, void *stream);

#ifdef __cplusplus
}
#endif
#endif
