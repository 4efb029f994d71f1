/* Parameters: how one is described (custom modules and shard groups), and how the values, gradients and optimizer state of
 * a model are looked at and set. A view of a parameter shows what the rank's own stream has made. One thread at a time per
 * model. */
#ifndef GANGWAY_PARAMETER_H
#define GANGWAY_PARAMETER_H

#include <gangway/module.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_parameter gw_parameter;
typedef struct gw_optimizer gw_optimizer;

/* --- describing one --------------------------------------------------------------------------------------------- */

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

/* --- looking in -------------------------------------------------------------------------------------------------- */

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

#ifdef __cplusplus
}
#endif
#endif
