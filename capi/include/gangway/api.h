/* Made by capi/generate.py from the other headers: do not edit. */
#ifndef GANGWAY_API_H
#define GANGWAY_API_H

#include <gangway/base.h>
#include <gangway/checkpoint.h>
#include <gangway/checkpoints.h>
#include <gangway/collectives.h>
#include <gangway/custom.h>
#include <gangway/custom_optimizer.h>
#include <gangway/dataset.h>
#include <gangway/fp8.h>
#include <gangway/frame.h>
#include <gangway/gang.h>
#include <gangway/layers.h>
#include <gangway/lora.h>
#include <gangway/mesh.h>
#include <gangway/metrics.h>
#include <gangway/module.h>
#include <gangway/optim.h>
#include <gangway/optimizers.h>
#include <gangway/parallel.h>
#include <gangway/parameter.h>
#include <gangway/partition.h>
#include <gangway/pipeline.h>
#include <gangway/plan.h>
#include <gangway/store.h>
#include <gangway/train.h>
#include <gangway/verify.h>
#include <gangway/view.h>
#include <gangway/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every function as a table, for programs that open the library at run time and look up gw_get_api alone.
 * Within a major level the table only grows at its end. */
typedef struct gw_api {
  size_t struct_size;
  int32_t abi_major;
  int32_t abi_minor;
  void (*error_info_init)(gw_error_info *info, size_t size);
  gw_status (*last_error)(gw_error_info *info);
  gw_error *(*error_take)(void);
  gw_status (*error_describe)(const gw_error *error, gw_error_info *info);
  void (*error_release)(gw_error *error);
  const char *(*status_name)(gw_status status);
  const char *(*dtype_name)(gw_dtype dtype);
  size_t (*dtype_bytes)(gw_dtype dtype);
  void (*version)(int32_t *out_major, int32_t *out_minor, int32_t *out_patch);
  void (*abi_version)(int32_t *out_major, int32_t *out_minor);
  void (*abi_range)(int32_t *out_lowest, int32_t *out_highest);
  gw_status (*interrupt_set)(gw_interrupt_fn check, void *user, gw_free_fn release);
  gw_status (*log_read)(uint64_t first, char *text, size_t capacity, size_t *out_len, uint64_t *out_next);
  gw_status (*config_text)(char *text, size_t capacity, size_t *out_len);
  const void *(*bytes_data)(const gw_bytes *bytes);
  size_t (*bytes_size)(const gw_bytes *bytes);
  void (*bytes_release)(gw_bytes *bytes);
  gw_status (*view_set)(gw_view *view, void *data, const int64_t *shape, int32_t ndim, gw_dtype dtype);
  gw_status (*tensor_copy)(const gw_view *view, gw_tensor **out_tensor);
  gw_status (*tensor_view)(const gw_tensor *tensor, gw_view *out_view);
  gw_tensor *(*tensor_retain)(gw_tensor *tensor);
  void (*tensor_release)(gw_tensor *tensor);
  gw_status (*tensor_from_dlpack)(struct DLManagedTensorVersioned *managed, gw_tensor **out_tensor);
  gw_status (*tensor_to_dlpack)(gw_tensor *tensor, struct DLManagedTensorVersioned **out_managed);
  gw_status (*store_create_file)(const char *folder, gw_store **out_store);
  void (*store_callbacks_init)(gw_store_callbacks *callbacks, size_t size);
  gw_status (*store_create_callbacks)(const gw_store_callbacks *callbacks, gw_store **out_store);
  void (*store_release)(gw_store *store);
  void (*gang_options_init)(gw_gang_options *options, size_t size);
  gw_status (*gang_create)(const gw_gang_options *options, gw_gang **out_gang);
  gw_status (*gang_id_create)(void *id, size_t capacity, size_t *out_size);
  gw_status (*gang_create_threads)(int32_t count, const gw_gang_options *options, gw_gang *out_gangs[]);
  gw_status (*gang_create_fake)(int32_t rank, int32_t size, const gw_gang_options *options, gw_gang **out_gang);
  gw_status (*gang_create_gang)(gw_gang *gang, const int32_t *ranks, size_t rank_count, gw_gang **out_gang);
  gw_status (*gang_split)(gw_gang *gang, int32_t color, int32_t key, gw_gang **out_gang);
  gw_status (*gang_duplicate)(gw_gang *gang, gw_gang **out_gang);
  gw_gang *(*gang_retain)(gw_gang *gang);
  void (*gang_release)(gw_gang *gang);
  int32_t (*gang_rank)(const gw_gang *gang);
  int32_t (*gang_size)(const gw_gang *gang);
  const char *(*gang_name)(const gw_gang *gang);
  const char *(*gang_engine)(const gw_gang *gang);
  const char *(*gang_device)(const gw_gang *gang);
  gw_status (*gang_native_handle)(gw_gang *gang, void **out_handle);
  void (*gang_traffic_init)(gw_gang_traffic *traffic, size_t size);
  gw_status (*gang_get_traffic)(const gw_gang *gang, gw_gang_traffic *traffic);
  gw_status (*gang_alloc)(gw_gang *gang, size_t bytes, void **out_data);
  void (*gang_free)(gw_gang *gang, void *data);
  gw_status (*gang_alloc_shared)(gw_gang *gang, size_t bytes, void **out_data);
  void (*collective_init)(gw_collective *record, size_t size);
  gw_status (*gang_run)(gw_gang *gang, const gw_collective *record, void *stream, gw_work **out_work);
  gw_status (*gang_run_batch)(gw_gang *gang, const gw_collective *records, size_t record_count, void *stream,
      gw_work **out_work);
  gw_status (*gang_barrier)(gw_gang *gang, void *stream);
  gw_status (*gang_barrier_async)(gw_gang *gang, void *stream, gw_work **out_work);
  gw_status (*gang_all_reduce)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      gw_reduce reduce, void *stream);
  gw_status (*gang_all_reduce_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype
      dtype, gw_reduce reduce, void *stream, gw_work **out_work);
  gw_status (*gang_all_gather)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      void *stream);
  gw_status (*gang_all_gather_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype
      dtype, void *stream, gw_work **out_work);
  gw_status (*gang_all_gather_list)(gw_gang *gang, const void *input, void *const *outputs, size_t count,
      gw_dtype dtype, void *stream);
  gw_status (*gang_reduce_scatter)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      gw_reduce reduce, void *stream);
  gw_status (*gang_reduce_scatter_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype
      dtype, gw_reduce reduce, void *stream, gw_work **out_work);
  gw_status (*gang_broadcast)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      int32_t root, void *stream);
  gw_status (*gang_broadcast_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype
      dtype, int32_t root, void *stream, gw_work **out_work);
  gw_status (*gang_reduce)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      gw_reduce reduce, int32_t root, void *stream);
  gw_status (*gang_reduce_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      gw_reduce reduce, int32_t root, void *stream, gw_work **out_work);
  gw_status (*gang_gather)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype, int32_t
      root, void *stream);
  gw_status (*gang_gather_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      int32_t root, void *stream, gw_work **out_work);
  gw_status (*gang_scatter)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      int32_t root, void *stream);
  gw_status (*gang_scatter_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      int32_t root, void *stream, gw_work **out_work);
  gw_status (*gang_all_to_all)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
      void *stream);
  gw_status (*gang_all_to_all_async)(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype
      dtype, void *stream, gw_work **out_work);
  gw_status (*gang_send)(gw_gang *gang, const void *input, size_t count, gw_dtype dtype, int32_t peer, void
      *stream);
  gw_status (*gang_send_async)(gw_gang *gang, const void *input, size_t count, gw_dtype dtype, int32_t peer,
      void *stream, gw_work **out_work);
  gw_status (*gang_recv)(gw_gang *gang, void *output, size_t count, gw_dtype dtype, int32_t peer, void *stream);
  gw_status (*gang_recv_async)(gw_gang *gang, void *output, size_t count, gw_dtype dtype, int32_t peer, void
      *stream, gw_work **out_work);
  gw_status (*gang_broadcast_bytes)(gw_gang *gang, const void *data, size_t size, int32_t root, gw_bytes
      **out_bytes);
  gw_status (*gang_all_gather_bytes)(gw_gang *gang, const void *data, size_t size, size_t out_sizes[], gw_bytes
      **out_bytes);
  gw_status (*gang_broadcast_flag)(gw_gang *gang, int32_t flag, int32_t root, int32_t *out_flag);
  gw_status (*gang_all_sum)(gw_gang *gang, double value, double *out_sum);
  gw_status (*work_poll)(gw_work *work, int32_t *out_done);
  gw_status (*work_wait)(gw_work *work, int64_t timeout_ms);
  gw_status (*work_wait_many)(gw_work *const *works, size_t work_count, int64_t timeout_ms);
  gw_status (*work_order)(gw_work *work, void *stream);
  gw_status (*work_error)(gw_work *work);
  gw_status (*work_attach)(gw_work *work, void *object, gw_free_fn free_object);
  void (*work_release)(gw_work *work);
  gw_status (*gang_shutdown)(gw_gang *gang, int64_t timeout_ms);
  gw_status (*gang_abort)(gw_gang *gang, const char *reason);
  gw_status (*gang_async_error)(gw_gang *gang);
  gw_status (*gang_shrink)(gw_gang *gang, const int32_t *survivors, size_t survivor_count, gw_gang **out_gang);
  gw_status (*gang_flight_record)(const gw_gang *gang, char *text, size_t capacity, size_t *out_len);
  void (*mesh_options_init)(gw_mesh_options *options, size_t size);
  gw_status (*gangs_create)(gw_gang *root, const gw_mesh_options *options, gw_gangs **out_gangs);
  gw_status (*gangs_create_parallel)(gw_gang *root, int32_t tp, int32_t pp, int32_t cp, gw_gangs **out_gangs);
  gw_status (*gangs_create_fsdp)(gw_gangs *gangs, int32_t intra_node_size, gw_gangs **out_gangs);
  gw_status (*gangs_create_fake)(const char *device, gw_gangs **out_gangs);
  gw_gangs *(*gangs_retain)(gw_gangs *gangs);
  void (*gangs_release)(gw_gangs *gangs);
  gw_status (*gangs_get)(gw_gangs *gangs, const char *axes, gw_gang **out_gang);
  gw_status (*gangs_coordinate)(const gw_gangs *gangs, const char *axis, int32_t *out_index, int32_t
      *out_degree);
  gw_status (*gangs_data_shard)(const gw_gangs *gangs, int32_t *out_index, int32_t *out_count);
  gw_status (*gangs_shutdown)(gw_gangs *gangs, int64_t timeout_ms);
  gw_status (*gangs_abort)(gw_gangs *gangs, const char *reason);
  gw_status (*gangs_push_current)(gw_gangs *gangs);
  gw_status (*gangs_pop_current)(gw_gangs *gangs);
  gw_status (*gangs_current)(const char *device, gw_gangs **out_gangs);
  gw_status (*gangs_set_default)(const char *device, gw_gangs *gangs);
  gw_status (*linear_create)(int64_t input_dim, int64_t output_dim, int32_t bias, gw_module **out_model);
  gw_status (*embedding_create)(int64_t rows, int64_t dim, gw_module **out_model);
  gw_status (*rmsnorm_create)(int64_t dim, double eps, gw_module **out_model);
  void (*attention_options_init)(gw_attention_options *options, size_t size);
  gw_status (*attention_create)(const gw_attention_options *options, gw_module **out_model);
  gw_status (*mlp_create)(int64_t dim, int64_t ffn, int32_t bias, gw_module **out_model);
  gw_status (*block_create)(const gw_attention_options *attention, int64_t ffn, double eps, gw_module
      **out_model);
  gw_status (*sequential_create)(gw_module *const *models, size_t model_count, gw_module **out_model);
  void (*init_options_init)(gw_init_options *options, size_t size);
  void (*parameter_options_init)(gw_parameter_options *options, size_t size);
  void (*custom_options_init)(gw_custom_options *options, size_t size);
  gw_status (*custom_create)(const gw_custom_options *options, gw_module **out_model);
  gw_status (*call_forward)(gw_call *call, int32_t child, const gw_view *inputs, size_t input_count, gw_view
      out_views[], size_t out_capacity, size_t *out_count);
  gw_status (*call_backward)(gw_call *call, int32_t child, const gw_view *output_grads, size_t grad_count,
      gw_view out_views[], size_t out_capacity, size_t *out_count);
  gw_module *(*module_retain)(gw_module *model);
  void (*module_release)(gw_module *model);
  gw_status (*module_materialize)(gw_module *model, gw_gangs *gangs, uint64_t seed, gw_dtype master_dtype);
  gw_status (*module_freeze)(gw_module *model, const char *pattern);
  gw_status (*frame_create)(gw_module *model, const gw_frame_options *options, gw_frame **out_frame);
  gw_status (*frame_reset)(gw_frame *frame);
  void (*frame_release)(gw_frame *frame);
  gw_status (*module_forward)(gw_module *model, const gw_view *inputs, size_t input_count, gw_frame *frame, void
      *stream, gw_tensor *out_tensors[], size_t out_capacity, size_t *out_count);
  gw_status (*module_backward)(gw_module *model, const gw_view *output_grads, size_t grad_count, gw_frame
      *frame, void *stream, gw_tensor *out_tensors[], size_t out_capacity, size_t *out_count);
  gw_status (*module_parameter_count)(const gw_module *model, size_t *out_count);
  gw_status (*module_parameter)(gw_module *model, size_t index, gw_parameter **out_parameter);
  gw_status (*module_find_parameter)(gw_module *model, const char *name, gw_parameter **out_parameter);
  void (*parameter_release)(gw_parameter *parameter);
  void (*parameter_info_init)(gw_parameter_info *info, size_t size);
  gw_status (*parameter_describe)(gw_parameter *parameter, gw_parameter_info *info);
  gw_status (*parameter_view)(gw_parameter *parameter, gw_part part, gw_view *out_view);
  gw_status (*parameter_state)(gw_parameter *parameter, const gw_optimizer *optimizer, const char *name, gw_view
      *out_view);
  gw_status (*parameter_gather)(gw_parameter *parameter, void *stream, gw_tensor **out_tensor);
  gw_status (*parameter_gather_gradient)(gw_parameter *parameter, void *stream, gw_tensor **out_tensor);
  gw_status (*parameter_assign)(gw_parameter *parameter, const gw_view *values, void *stream);
  void (*memory_use_init)(gw_memory_use *memory, size_t size);
  gw_status (*module_memory)(gw_module *model, gw_memory_use *memory);
  void (*save_options_init)(gw_save_options *options, size_t size);
  gw_status (*module_save)(gw_module *model, const char *folder, const gw_save_options *options);
  void (*load_options_init)(gw_load_options *options, size_t size);
  gw_status (*module_load)(gw_module *model, const char *path, const gw_load_options *options);
  void (*dtype_rule_init)(gw_dtype_rule *rule, size_t size);
  void (*shard_options_init)(gw_shard_options *options, size_t size);
  void (*parallel_options_init)(gw_parallel_options *options, size_t size);
  gw_status (*parallelize)(gw_module *model, gw_gangs *gangs, const gw_parallel_options *options);
  gw_status (*fully_shard)(gw_module *model, const char *pattern, gw_gangs *gangs, const gw_shard_options
      *options);
  gw_status (*replicate)(gw_module *model, gw_gangs *gangs, const gw_shard_options *options);
  gw_status (*recompute)(gw_module *model, gw_recompute_kind kind, int32_t every, double ratio);
  gw_status (*shard_group_create)(gw_gangs *gangs, const char *name, const gw_parameter_options *parameters,
      size_t parameter_count, const gw_shard_options *options, uint64_t seed, gw_shard_group **out_group);
  gw_shard_group *(*shard_group_retain)(gw_shard_group *group);
  void (*shard_group_release)(gw_shard_group *group);
  gw_status (*shard_group_unshard)(gw_shard_group *group, const gw_view *into, void *stream);
  gw_status (*shard_group_unshard_async)(gw_shard_group *group, void *stream, gw_work **out_work);
  gw_status (*shard_group_reshard)(gw_shard_group *group, void *stream);
  gw_status (*shard_group_view)(gw_shard_group *group, size_t index, gw_part part, gw_view *out_view);
  gw_status (*shard_group_add_gradient)(gw_shard_group *group, size_t index, const gw_view *gradient, void
      *stream);
  gw_status (*shard_group_reduce)(gw_shard_group *group, void *stream);
  gw_status (*shard_group_begin_update)(gw_shard_group *group, void *stream);
  gw_status (*shard_group_end_update)(gw_shard_group *group, void *stream);
  gw_status (*module_from_groups)(gw_shard_group *const *groups, size_t group_count, gw_module **out_model);
  void (*optimizer_rule_init)(gw_optimizer_rule *rule, size_t size);
  void (*adamw_options_init)(gw_adamw_options *options, size_t size);
  void (*sgd_options_init)(gw_sgd_options *options, size_t size);
  gw_status (*adamw_create)(gw_module *model, const gw_adamw_options *options, gw_optimizer **out_optimizer);
  gw_status (*sgd_create)(gw_module *model, const gw_sgd_options *options, gw_optimizer **out_optimizer);
  gw_optimizer *(*optimizer_retain)(gw_optimizer *optimizer);
  void (*optimizer_release)(gw_optimizer *optimizer);
  gw_status (*optimizer_steps)(const gw_optimizer *optimizer, int64_t *out_steps);
  gw_status (*optimizer_lr)(const gw_optimizer *optimizer, double *out_lr);
  gw_status (*optimizer_set_lr)(gw_optimizer *optimizer, double lr);
  gw_status (*clip_grad_norm)(gw_module *model, double max_norm, double p, void *stream, double *out_norm);
  gw_status (*zero_grad)(gw_module *model, void *stream);
  void (*batch_init)(gw_batch *batch, size_t size);
  void (*step_options_init)(gw_step_options *options, size_t size);
  void (*step_result_init)(gw_step_result *result, size_t size);
  gw_status (*train_step)(gw_module *model, gw_optimizer *optimizer, const gw_batch *batch, const
      gw_step_options *options, void *stream, gw_step_result *result);
  gw_status (*eval_step)(gw_module *model, const gw_batch *batch, const gw_step_options *options, void *stream,
      gw_step_result *result);
  gw_status (*optimizer_step)(gw_optimizer *optimizer, const gw_step_options *options, void *stream,
      gw_step_result *result);
  void (*generate_options_init)(gw_generate_options *options, size_t size);
  gw_status (*generate)(gw_module *model, const int64_t prompt[], size_t prompt_count, const gw_generate_options
      *options, void *stream, int64_t out_tokens[], size_t out_capacity, size_t *out_count);
  void (*frame_options_init)(gw_frame_options *options, size_t size);
  gw_status (*module_set_no_sync)(gw_module *model, int32_t no_sync);
  gw_status (*shard_group_tensor)(gw_shard_group *group, size_t index, gw_part part, gw_tensor **out_tensor);
  gw_error *(*error_retain)(gw_error *error);
  gw_status (*error_set)(const char *message);
  gw_bytes *(*bytes_retain)(gw_bytes *bytes);
  int32_t (*tensor_is_read_only)(const gw_tensor *tensor);
  gw_store *(*store_retain)(gw_store *store);
  gw_work *(*work_retain)(gw_work *work);
  gw_frame *(*frame_retain)(gw_frame *frame);
  gw_parameter *(*parameter_retain)(gw_parameter *parameter);
  gw_status (*parameter_tensor)(gw_parameter *parameter, gw_part part, gw_tensor **out_tensor);
  gw_status (*parameter_state_tensor)(gw_parameter *parameter, const gw_optimizer *optimizer, const char *name,
      gw_tensor **out_tensor);
  void (*memory_info_init)(gw_memory_info *info, size_t size);
  gw_status (*host_memory)(gw_memory_info *info);
  void (*allocator_init)(gw_allocator *allocator, size_t size);
  gw_status (*allocator_set)(const gw_allocator *allocator);
  gw_status (*gang_all_gather_list_async)(gw_gang *gang, const void *input, void *const *outputs, size_t count,
      gw_dtype dtype, void *stream, gw_work **out_work);
  gw_status (*gang_broadcast_flag_async)(gw_gang *gang, int32_t flag, int32_t root, int32_t *out_flag, gw_work
      **out_work);
  gw_status (*gang_all_sum_async)(gw_gang *gang, double value, double *out_sum, gw_work **out_work);
  const char *(*last_error_text)(void);
  gw_status (*partition_create)(gw_gang *gang, gw_partition **out_partition);
  gw_status (*partition_inclusive)(const gw_partition *partition, const int32_t *workers, size_t worker_count,
      gw_partition **out_partition);
  gw_status (*partition_union)(const gw_partition *partition, const gw_partition *other, gw_partition
      **out_partition);
  gw_status (*partition_cartesian)(const gw_partition *partition, const int32_t *shape, size_t dim_count,
      gw_partition **out_partition);
  gw_status (*partition_subtopology)(const gw_partition *partition, const int32_t *kept, size_t kept_count,
      gw_partition **out_partition);
  gw_partition *(*partition_retain)(gw_partition *partition);
  void (*partition_release)(gw_partition *partition);
  void (*partition_info_init)(gw_partition_info *info, size_t size);
  gw_status (*partition_describe)(const gw_partition *partition, gw_partition_info *info);
  gw_status (*partition_neighbors)(const gw_partition *partition, int32_t dim, int32_t *out_before, int32_t
      *out_after);
  void (*movement_options_init)(gw_movement_options *options, size_t size);
  gw_status (*movement_create)(const gw_partition *source, const gw_partition *target, gw_movement_kind kind,
      const gw_movement_options *options, gw_movement **out_movement);
  gw_movement *(*movement_retain)(gw_movement *movement);
  void (*movement_release)(gw_movement *movement);
  gw_status (*movement_forward)(gw_movement *movement, const gw_view *input, void *stream, gw_tensor
      **out_tensor);
  gw_status (*movement_backward)(gw_movement *movement, const gw_view *output_grad, void *stream, gw_tensor
      **out_tensor);
  gw_status (*module_check_replicas)(gw_module *model, void *stream);
  gw_status (*mesh_options_preset)(gw_mesh_options *options, const char *preset, int32_t node_size);
  void (*gang_places_init)(gw_gang_places *places, size_t size);
  gw_status (*gangs_create_of)(const gw_gang_places *places, gw_gangs **out_gangs);
  void (*pipeline_options_init)(gw_pipeline_options *options, size_t size);
  gw_status (*pipeline_create)(gw_gang *gang, const gw_pipeline_options *options, gw_pipeline **out_pipeline);
  gw_pipeline *(*pipeline_retain)(gw_pipeline *pipeline);
  void (*pipeline_release)(gw_pipeline *pipeline);
  void (*pipeline_info_init)(gw_pipeline_info *info, size_t size);
  gw_status (*pipeline_describe)(const gw_pipeline *pipeline, gw_pipeline_info *info);
  gw_status (*pipeline_stage_rank)(const gw_pipeline *pipeline, int32_t stage, int32_t *out_rank);
  gw_status (*pipeline_set_training)(gw_pipeline *pipeline, int32_t training);
  void (*pipeline_action_init)(gw_pipeline_action *action, size_t size);
  gw_status (*pipeline_next)(gw_pipeline *pipeline, void *stream, gw_pipeline_action *action);
  gw_status (*pipeline_done)(gw_pipeline *pipeline, const gw_view *outputs, size_t output_count, void *stream);
  gw_status (*gang_probe)(gw_gang *gang, int32_t peer, int32_t *out_ready, size_t *out_count, gw_dtype
      *out_dtype);
  void (*plan_row_init)(gw_plan_row *row, size_t size);
  void (*tensor_parallel_options_init)(gw_tensor_parallel_options *options, size_t size);
  gw_status (*tensor_parallel)(gw_module *model, gw_gangs *gangs, const gw_tensor_parallel_options *options);
  gw_status (*context_parallel)(gw_module *model, gw_gangs *gangs, gw_context_method method);
  gw_status (*gang_begin_trace)(gw_gang *gang, const char *folder);
  gw_status (*gang_end_trace)(gw_gang *gang);
  gw_status (*pipeline_input)(gw_pipeline *pipeline, size_t index, gw_tensor **out_tensor);
  gw_status (*tensor_to_host)(const gw_tensor *tensor, void *stream, gw_tensor **out_tensor);
  gw_status (*optimizer_loss_scale)(const gw_optimizer *optimizer, double *out_scale);
  gw_status (*optimizer_set_loss_scale)(gw_optimizer *optimizer, double scale);
  gw_status (*tensor_order)(const gw_tensor *tensor, void *stream);
  gw_status (*gang_alloc_tensor)(gw_gang *gang, const int64_t *shape, int32_t ndim, gw_dtype dtype, gw_tensor
      **out_tensor);
  void (*lion_options_init)(gw_lion_options *options, size_t size);
  gw_status (*lion_create)(gw_module *model, const gw_lion_options *options, gw_optimizer **out_optimizer);
  void (*decoder_options_init)(gw_decoder_options *options, size_t size);
  gw_status (*decoder_options_from_family)(const char *family, gw_decoder_options *options);
  gw_status (*decoder_create)(const gw_decoder_options *options, gw_module **out_model);
  gw_status (*decoder_options_from_folder)(const char *folder, gw_decoder_options *options);
  gw_status (*model_from_folder)(gw_gangs *gangs, const char *folder, const gw_parallel_options *options,
      gw_module **out_model);
  void (*checkpoints_options_init)(gw_checkpoints_options *options, size_t size);
  gw_status (*checkpoints_create)(gw_gangs *gangs, const char *folder, const gw_checkpoints_options *options,
      gw_checkpoints **out_checkpoints);
  gw_checkpoints *(*checkpoints_retain)(gw_checkpoints *checkpoints);
  void (*checkpoints_release)(gw_checkpoints *checkpoints);
  void (*checkpoint_part_init)(gw_checkpoint_part *part, size_t size);
  void (*checkpoint_text_init)(gw_checkpoint_text *text, size_t size);
  void (*checkpoint_state_init)(gw_checkpoint_state *state, size_t size);
  gw_status (*checkpoints_due)(const gw_checkpoints *checkpoints, int64_t step, int32_t *out_due);
  gw_status (*checkpoints_save)(gw_checkpoints *checkpoints, const gw_checkpoint_part *parts, size_t part_count,
      const gw_checkpoint_state *state);
  gw_status (*checkpoints_wait)(gw_checkpoints *checkpoints);
  void (*restore_options_init)(gw_restore_options *options, size_t size);
  gw_status (*checkpoints_restore)(gw_checkpoints *checkpoints, const gw_checkpoint_part *parts, size_t
      part_count, const gw_restore_options *options, int64_t *out_step, int64_t *out_tokens);
  gw_status (*checkpoints_text)(const gw_checkpoints *checkpoints, const char *name, char *text, size_t
      capacity, size_t *out_len);
  gw_status (*checkpoints_user)(const gw_checkpoints *checkpoints, void *data, size_t capacity, size_t
      *out_size);
  gw_status (*checkpoints_notes)(const gw_checkpoints *checkpoints, char *text, size_t capacity, size_t
      *out_len);
  gw_status (*checkpoints_buffer_bytes)(const gw_checkpoints *checkpoints, uint64_t *out_bytes);
  gw_status (*optimizer_load)(gw_optimizer *optimizer, const char *path);
  gw_status (*optimizer_create)(gw_module *model, const char *kind, const char *const names[], const char *const
      values[], size_t option_count, gw_optimizer **out_optimizer);
  gw_status (*optimizer_set_steps)(gw_optimizer *optimizer, int64_t steps);
  gw_status (*optimizer_base_lr)(const gw_optimizer *optimizer, double *out_lr);
  gw_status (*optimizer_finite_steps)(const gw_optimizer *optimizer, int64_t *out_steps);
  gw_status (*optimizer_restore_loss_scale)(gw_optimizer *optimizer, double scale, int64_t finite_steps);
  gw_status (*optimizer_swap_ema)(gw_optimizer *optimizer, void *stream);
  void (*adafactor_options_init)(gw_adafactor_options *options, size_t size);
  gw_status (*adafactor_create)(gw_module *model, const gw_adafactor_options *options, gw_optimizer
      **out_optimizer);
  void (*adamw8bit_options_init)(gw_adamw8bit_options *options, size_t size);
  gw_status (*adamw8bit_create)(gw_module *model, const gw_adamw8bit_options *options, gw_optimizer
      **out_optimizer);
  void (*muon_options_init)(gw_muon_options *options, size_t size);
  gw_status (*muon_create)(gw_module *model, const gw_muon_options *options, gw_optimizer **out_optimizer);
  void (*custom_optimizer_options_init)(gw_custom_optimizer_options *options, size_t size);
  gw_status (*custom_optimizer_create)(gw_module *model, const gw_custom_optimizer_options *options,
      gw_optimizer **out_optimizer);
  gw_status (*optimizer_set_schedule)(gw_optimizer *optimizer, gw_schedule_fn factor, void *user, gw_free_fn
      release);
  void (*data_source_init)(gw_data_source *source, size_t size);
  void (*dataset_options_init)(gw_dataset_options *options, size_t size);
  gw_status (*dataset_create)(const gw_dataset_options *options, gw_dataset **out_dataset);
  gw_dataset *(*dataset_retain)(gw_dataset *dataset);
  void (*dataset_release)(gw_dataset *dataset);
  void (*data_batch_init)(gw_data_batch *batch, size_t size);
  gw_status (*dataset_next)(gw_dataset *dataset, const gw_gangs *gangs, int64_t global_batch, gw_data_batch
      *batch);
  gw_status (*dataset_rows_per_epoch)(const gw_dataset *dataset, int64_t *out_rows);
  gw_status (*dataset_rows_taken)(const gw_dataset *dataset, int64_t *out_rows);
  gw_status (*dataset_batches_taken)(const gw_dataset *dataset, int64_t *out_batches);
  gw_status (*dataset_set_rows_taken)(gw_dataset *dataset, int64_t rows);
  gw_status (*dataset_position)(const gw_dataset *dataset, char *text, size_t capacity, size_t *out_len);
  gw_status (*dataset_restore)(gw_dataset *dataset, const char *position, int32_t ignore_differences);
  void (*metrics_row_init)(gw_metrics_row *row, size_t size);
  void (*metrics_options_init)(gw_metrics_options *options, size_t size);
  gw_status (*metrics_create)(gw_module *model, const gw_metrics_options *options, gw_metrics **out_metrics);
  gw_metrics *(*metrics_retain)(gw_metrics *metrics);
  void (*metrics_release)(gw_metrics *metrics);
  void (*metrics_step_init)(gw_metrics_step *step, size_t size);
  gw_status (*metrics_log)(gw_metrics *metrics, const gw_step_result *result, const gw_metrics_step *step);
  gw_status (*metrics_latest)(const gw_metrics *metrics, gw_metrics_row *row, int64_t *out_rows);
  gw_status (*metrics_log_evaluation)(gw_metrics *metrics, double loss, double seconds);
  gw_status (*metrics_flush)(gw_metrics *metrics);
  gw_status (*metrics_position)(const gw_metrics *metrics, char *text, size_t capacity, size_t *out_len);
  gw_status (*metrics_restore)(gw_metrics *metrics, const char *position);
  void (*plan_options_init)(gw_plan_options *options, size_t size);
  gw_status (*plan_memory)(const gw_plan_options *options, gw_memory_use *memory, int32_t *out_rank);
  gw_status (*movement_duplicate)(const gw_movement *movement, gw_movement **out_movement);
  void (*lora_options_init)(gw_lora_options *options, size_t size);
  gw_status (*lora_apply)(gw_module *model, const gw_lora_options *options);
  gw_status (*lora_apply_folder)(gw_module *model, const char *folder, uint64_t seed);
  gw_status (*lora_enable)(gw_module *model, int32_t on);
  gw_status (*lora_save)(gw_module *model, const char *folder, const char *base, const gw_save_options
      *options);
  gw_status (*lora_load)(gw_module *model, const char *folder);
  gw_status (*lora_merge)(gw_module *model, void *stream);
  void (*verify_options_init)(gw_verify_options *options, size_t size);
  void (*verify_result_init)(gw_verify_result *result, size_t size);
  gw_status (*verify)(gw_gangs *gangs, gw_build_fn build, void *user, const gw_batch *batch, const
      gw_verify_options *options, gw_verify_result *result);
  gw_status (*layernorm_create)(int64_t dim, double eps, gw_module **out_model);
  void (*feed_forward_options_init)(gw_feed_forward_options *options, size_t size);
  gw_status (*feed_forward_create)(const gw_feed_forward_options *options, gw_module **out_model);
  gw_status (*activation_create)(gw_activation activation, gw_module **out_model);
  gw_status (*dropout_create)(double probability, gw_module **out_model);
  gw_status (*module_gradient_norms)(const gw_module *model, double out_norms[], size_t out_capacity, size_t
      *out_count);
  gw_status (*log_probs)(gw_module *model, const gw_batch *batch, const gw_step_options *options, void *stream,
      double out_log_probs[], size_t out_capacity, size_t *out_count);
  gw_status (*generate_rows)(gw_module *model, const int64_t prompts[], const int64_t lengths[], size_t
      row_count, const gw_generate_options *options, void *stream, int64_t out_tokens[], size_t out_capacity,
      int64_t out_counts[]);
  gw_status (*verify_groups)(gw_gangs *gangs, gw_groups_step_fn step, void *user, const gw_verify_options
      *options, gw_verify_result *result);
  void (*fp8_options_init)(gw_fp8_options *options, size_t size);
  gw_status (*fp8_apply)(gw_module *model, const gw_fp8_options *options);
} gw_api;

/* Local. Gives the table of a minor ABI level, which is static; null for a level that gw_abi_range does not
 * give. */
GW_API const gw_api *gw_get_api(int32_t abi_minor);

#ifdef __cplusplus
}
#endif
#endif
