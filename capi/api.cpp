// Made by capi/generate.py from the public headers: do not edit.
#include <gangway/api.h>

#include "level.h"

namespace {

const gw_api kApi = {
    sizeof(gw_api),
    gangway::capi::kAbiMajor,
    gangway::capi::kAbiMinor,
    gw_error_info_init,
    gw_last_error,
    gw_error_take,
    gw_error_describe,
    gw_error_release,
    gw_status_name,
    gw_dtype_name,
    gw_dtype_bytes,
    gw_version,
    gw_abi_version,
    gw_abi_range,
    gw_interrupt_set,
    gw_log_read,
    gw_config_text,
    gw_bytes_data,
    gw_bytes_size,
    gw_bytes_release,
    gw_view_set,
    gw_tensor_copy,
    gw_tensor_view,
    gw_tensor_retain,
    gw_tensor_release,
    gw_tensor_from_dlpack,
    gw_tensor_to_dlpack,
    gw_store_create_file,
    gw_store_callbacks_init,
    gw_store_create_callbacks,
    gw_store_release,
    gw_gang_options_init,
    gw_gang_create,
    gw_gang_id_create,
    gw_gang_create_threads,
    gw_gang_create_fake,
    gw_gang_create_gang,
    gw_gang_split,
    gw_gang_duplicate,
    gw_gang_retain,
    gw_gang_release,
    gw_gang_rank,
    gw_gang_size,
    gw_gang_name,
    gw_gang_engine,
    gw_gang_device,
    gw_gang_native_handle,
    gw_gang_traffic_init,
    gw_gang_get_traffic,
    gw_gang_alloc,
    gw_gang_free,
    gw_gang_alloc_shared,
    gw_collective_init,
    gw_gang_run,
    gw_gang_run_batch,
    gw_gang_barrier,
    gw_gang_barrier_async,
    gw_gang_all_reduce,
    gw_gang_all_reduce_async,
    gw_gang_all_gather,
    gw_gang_all_gather_async,
    gw_gang_all_gather_list,
    gw_gang_reduce_scatter,
    gw_gang_reduce_scatter_async,
    gw_gang_broadcast,
    gw_gang_broadcast_async,
    gw_gang_reduce,
    gw_gang_reduce_async,
    gw_gang_gather,
    gw_gang_gather_async,
    gw_gang_scatter,
    gw_gang_scatter_async,
    gw_gang_all_to_all,
    gw_gang_all_to_all_async,
    gw_gang_send,
    gw_gang_send_async,
    gw_gang_recv,
    gw_gang_recv_async,
    gw_gang_broadcast_bytes,
    gw_gang_all_gather_bytes,
    gw_gang_broadcast_flag,
    gw_gang_all_sum,
    gw_work_poll,
    gw_work_wait,
    gw_work_wait_many,
    gw_work_order,
    gw_work_error,
    gw_work_attach,
    gw_work_release,
    gw_gang_shutdown,
    gw_gang_abort,
    gw_gang_async_error,
    gw_gang_shrink,
    gw_gang_flight_record,
    gw_mesh_options_init,
    gw_gangs_create,
    gw_gangs_create_parallel,
    gw_gangs_create_fsdp,
    gw_gangs_create_fake,
    gw_gangs_retain,
    gw_gangs_release,
    gw_gangs_get,
    gw_gangs_coordinate,
    gw_gangs_data_shard,
    gw_gangs_shutdown,
    gw_gangs_abort,
    gw_gangs_push_current,
    gw_gangs_pop_current,
    gw_gangs_current,
    gw_gangs_set_default,
    gw_linear_create,
    gw_embedding_create,
    gw_rmsnorm_create,
    gw_attention_options_init,
    gw_attention_create,
    gw_mlp_create,
    gw_block_create,
    gw_sequential_create,
    gw_init_options_init,
    gw_parameter_options_init,
    gw_custom_options_init,
    gw_custom_create,
    gw_call_forward,
    gw_call_backward,
    gw_module_retain,
    gw_module_release,
    gw_module_materialize,
    gw_module_freeze,
    gw_frame_create,
    gw_frame_reset,
    gw_frame_release,
    gw_module_forward,
    gw_module_backward,
    gw_module_parameter_count,
    gw_module_parameter,
    gw_module_find_parameter,
    gw_parameter_release,
    gw_parameter_info_init,
    gw_parameter_describe,
    gw_parameter_view,
    gw_parameter_state,
    gw_parameter_gather,
    gw_parameter_gather_gradient,
    gw_parameter_assign,
    gw_memory_use_init,
    gw_module_memory,
    gw_save_options_init,
    gw_module_save,
    gw_load_options_init,
    gw_module_load,
    gw_dtype_rule_init,
    gw_shard_options_init,
    gw_parallel_options_init,
    gw_parallelize,
    gw_fully_shard,
    gw_replicate,
    gw_recompute,
    gw_shard_group_create,
    gw_shard_group_retain,
    gw_shard_group_release,
    gw_shard_group_unshard,
    gw_shard_group_unshard_async,
    gw_shard_group_reshard,
    gw_shard_group_view,
    gw_shard_group_add_gradient,
    gw_shard_group_reduce,
    gw_shard_group_begin_update,
    gw_shard_group_end_update,
    gw_module_from_groups,
    gw_optimizer_rule_init,
    gw_adamw_options_init,
    gw_sgd_options_init,
    gw_adamw_create,
    gw_sgd_create,
    gw_optimizer_retain,
    gw_optimizer_release,
    gw_optimizer_steps,
    gw_optimizer_lr,
    gw_optimizer_set_lr,
    gw_clip_grad_norm,
    gw_zero_grad,
    gw_batch_init,
    gw_step_options_init,
    gw_step_result_init,
    gw_train_step,
    gw_eval_step,
    gw_optimizer_step,
    gw_generate_options_init,
    gw_generate,
    gw_frame_options_init,
    gw_module_set_no_sync,
    gw_shard_group_tensor,
    gw_error_retain,
    gw_error_set,
    gw_bytes_retain,
    gw_tensor_is_read_only,
    gw_store_retain,
    gw_work_retain,
    gw_frame_retain,
    gw_parameter_retain,
    gw_parameter_tensor,
    gw_parameter_state_tensor,
    gw_memory_info_init,
    gw_host_memory,
    gw_allocator_init,
    gw_allocator_set,
    gw_gang_all_gather_list_async,
    gw_gang_broadcast_flag_async,
    gw_gang_all_sum_async,
    gw_last_error_text,
    gw_partition_create,
    gw_partition_inclusive,
    gw_partition_union,
    gw_partition_cartesian,
    gw_partition_subtopology,
    gw_partition_retain,
    gw_partition_release,
    gw_partition_info_init,
    gw_partition_describe,
    gw_partition_neighbors,
    gw_movement_options_init,
    gw_movement_create,
    gw_movement_retain,
    gw_movement_release,
    gw_movement_forward,
    gw_movement_backward,
    gw_module_check_replicas,
    gw_mesh_options_preset,
    gw_gang_places_init,
    gw_gangs_create_of,
    gw_pipeline_options_init,
    gw_pipeline_create,
    gw_pipeline_retain,
    gw_pipeline_release,
    gw_pipeline_info_init,
    gw_pipeline_describe,
    gw_pipeline_stage_rank,
    gw_pipeline_set_training,
    gw_pipeline_action_init,
    gw_pipeline_next,
    gw_pipeline_done,
    gw_gang_probe,
    gw_plan_row_init,
    gw_tensor_parallel_options_init,
    gw_tensor_parallel,
    gw_context_parallel,
    gw_gang_begin_trace,
    gw_gang_end_trace,
    gw_pipeline_input,
    gw_tensor_to_host,
    gw_optimizer_loss_scale,
    gw_optimizer_set_loss_scale,
    gw_tensor_order,
    gw_gang_alloc_tensor,
    gw_lion_options_init,
    gw_lion_create,
    gw_decoder_options_init,
    gw_decoder_options_from_family,
    gw_decoder_create,
    gw_decoder_options_from_folder,
    gw_model_from_folder,
    gw_checkpoints_options_init,
    gw_checkpoints_create,
    gw_checkpoints_retain,
    gw_checkpoints_release,
    gw_checkpoint_part_init,
    gw_checkpoint_text_init,
    gw_checkpoint_state_init,
    gw_checkpoints_due,
    gw_checkpoints_save,
    gw_checkpoints_wait,
    gw_restore_options_init,
    gw_checkpoints_restore,
    gw_checkpoints_text,
    gw_checkpoints_user,
    gw_checkpoints_notes,
    gw_checkpoints_buffer_bytes,
    gw_optimizer_load,
    gw_optimizer_create,
    gw_optimizer_set_steps,
    gw_optimizer_base_lr,
    gw_optimizer_finite_steps,
    gw_optimizer_restore_loss_scale,
    gw_optimizer_swap_ema,
    gw_adafactor_options_init,
    gw_adafactor_create,
    gw_adamw8bit_options_init,
    gw_adamw8bit_create,
    gw_muon_options_init,
    gw_muon_create,
    gw_custom_optimizer_options_init,
    gw_custom_optimizer_create,
    gw_optimizer_set_schedule,
    gw_data_source_init,
    gw_dataset_options_init,
    gw_dataset_create,
    gw_dataset_retain,
    gw_dataset_release,
    gw_data_batch_init,
    gw_dataset_next,
    gw_dataset_rows_per_epoch,
    gw_dataset_rows_taken,
    gw_dataset_batches_taken,
    gw_dataset_set_rows_taken,
    gw_dataset_position,
    gw_dataset_restore,
    gw_metrics_row_init,
    gw_metrics_options_init,
    gw_metrics_create,
    gw_metrics_retain,
    gw_metrics_release,
    gw_metrics_step_init,
    gw_metrics_log,
    gw_metrics_latest,
    gw_metrics_log_evaluation,
    gw_metrics_flush,
    gw_metrics_position,
    gw_metrics_restore,
    gw_plan_options_init,
    gw_plan_memory,
    gw_movement_duplicate,
    gw_lora_options_init,
    gw_lora_apply,
    gw_lora_apply_folder,
    gw_lora_enable,
    gw_lora_save,
    gw_lora_load,
    gw_lora_merge,
    gw_verify_options_init,
    gw_verify_result_init,
    gw_verify,
    gw_layernorm_create,
    gw_feed_forward_options_init,
    gw_feed_forward_create,
    gw_activation_create,
    gw_dropout_create,
    gw_module_gradient_norms,
    gw_log_probs,
    gw_generate_rows,
    gw_verify_groups,
    gw_fp8_options_init,
    gw_fp8_apply,
};

// An entry never moves, because programs that were compiled earlier call it at its offset.
static_assert(offsetof(gw_api, error_info_init) == 16 + 0 * sizeof(void*));
static_assert(offsetof(gw_api, last_error) == 16 + 1 * sizeof(void*));
static_assert(offsetof(gw_api, error_take) == 16 + 2 * sizeof(void*));
static_assert(offsetof(gw_api, error_describe) == 16 + 3 * sizeof(void*));
static_assert(offsetof(gw_api, error_release) == 16 + 4 * sizeof(void*));
static_assert(offsetof(gw_api, status_name) == 16 + 5 * sizeof(void*));
static_assert(offsetof(gw_api, dtype_name) == 16 + 6 * sizeof(void*));
static_assert(offsetof(gw_api, dtype_bytes) == 16 + 7 * sizeof(void*));
static_assert(offsetof(gw_api, version) == 16 + 8 * sizeof(void*));
static_assert(offsetof(gw_api, abi_version) == 16 + 9 * sizeof(void*));
static_assert(offsetof(gw_api, abi_range) == 16 + 10 * sizeof(void*));
static_assert(offsetof(gw_api, interrupt_set) == 16 + 11 * sizeof(void*));
static_assert(offsetof(gw_api, log_read) == 16 + 12 * sizeof(void*));
static_assert(offsetof(gw_api, config_text) == 16 + 13 * sizeof(void*));
static_assert(offsetof(gw_api, bytes_data) == 16 + 14 * sizeof(void*));
static_assert(offsetof(gw_api, bytes_size) == 16 + 15 * sizeof(void*));
static_assert(offsetof(gw_api, bytes_release) == 16 + 16 * sizeof(void*));
static_assert(offsetof(gw_api, view_set) == 16 + 17 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_copy) == 16 + 18 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_view) == 16 + 19 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_retain) == 16 + 20 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_release) == 16 + 21 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_from_dlpack) == 16 + 22 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_to_dlpack) == 16 + 23 * sizeof(void*));
static_assert(offsetof(gw_api, store_create_file) == 16 + 24 * sizeof(void*));
static_assert(offsetof(gw_api, store_callbacks_init) == 16 + 25 * sizeof(void*));
static_assert(offsetof(gw_api, store_create_callbacks) == 16 + 26 * sizeof(void*));
static_assert(offsetof(gw_api, store_release) == 16 + 27 * sizeof(void*));
static_assert(offsetof(gw_api, gang_options_init) == 16 + 28 * sizeof(void*));
static_assert(offsetof(gw_api, gang_create) == 16 + 29 * sizeof(void*));
static_assert(offsetof(gw_api, gang_id_create) == 16 + 30 * sizeof(void*));
static_assert(offsetof(gw_api, gang_create_threads) == 16 + 31 * sizeof(void*));
static_assert(offsetof(gw_api, gang_create_fake) == 16 + 32 * sizeof(void*));
static_assert(offsetof(gw_api, gang_create_gang) == 16 + 33 * sizeof(void*));
static_assert(offsetof(gw_api, gang_split) == 16 + 34 * sizeof(void*));
static_assert(offsetof(gw_api, gang_duplicate) == 16 + 35 * sizeof(void*));
static_assert(offsetof(gw_api, gang_retain) == 16 + 36 * sizeof(void*));
static_assert(offsetof(gw_api, gang_release) == 16 + 37 * sizeof(void*));
static_assert(offsetof(gw_api, gang_rank) == 16 + 38 * sizeof(void*));
static_assert(offsetof(gw_api, gang_size) == 16 + 39 * sizeof(void*));
static_assert(offsetof(gw_api, gang_name) == 16 + 40 * sizeof(void*));
static_assert(offsetof(gw_api, gang_engine) == 16 + 41 * sizeof(void*));
static_assert(offsetof(gw_api, gang_device) == 16 + 42 * sizeof(void*));
static_assert(offsetof(gw_api, gang_native_handle) == 16 + 43 * sizeof(void*));
static_assert(offsetof(gw_api, gang_traffic_init) == 16 + 44 * sizeof(void*));
static_assert(offsetof(gw_api, gang_get_traffic) == 16 + 45 * sizeof(void*));
static_assert(offsetof(gw_api, gang_alloc) == 16 + 46 * sizeof(void*));
static_assert(offsetof(gw_api, gang_free) == 16 + 47 * sizeof(void*));
static_assert(offsetof(gw_api, gang_alloc_shared) == 16 + 48 * sizeof(void*));
static_assert(offsetof(gw_api, collective_init) == 16 + 49 * sizeof(void*));
static_assert(offsetof(gw_api, gang_run) == 16 + 50 * sizeof(void*));
static_assert(offsetof(gw_api, gang_run_batch) == 16 + 51 * sizeof(void*));
static_assert(offsetof(gw_api, gang_barrier) == 16 + 52 * sizeof(void*));
static_assert(offsetof(gw_api, gang_barrier_async) == 16 + 53 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_reduce) == 16 + 54 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_reduce_async) == 16 + 55 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_gather) == 16 + 56 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_gather_async) == 16 + 57 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_gather_list) == 16 + 58 * sizeof(void*));
static_assert(offsetof(gw_api, gang_reduce_scatter) == 16 + 59 * sizeof(void*));
static_assert(offsetof(gw_api, gang_reduce_scatter_async) == 16 + 60 * sizeof(void*));
static_assert(offsetof(gw_api, gang_broadcast) == 16 + 61 * sizeof(void*));
static_assert(offsetof(gw_api, gang_broadcast_async) == 16 + 62 * sizeof(void*));
static_assert(offsetof(gw_api, gang_reduce) == 16 + 63 * sizeof(void*));
static_assert(offsetof(gw_api, gang_reduce_async) == 16 + 64 * sizeof(void*));
static_assert(offsetof(gw_api, gang_gather) == 16 + 65 * sizeof(void*));
static_assert(offsetof(gw_api, gang_gather_async) == 16 + 66 * sizeof(void*));
static_assert(offsetof(gw_api, gang_scatter) == 16 + 67 * sizeof(void*));
static_assert(offsetof(gw_api, gang_scatter_async) == 16 + 68 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_to_all) == 16 + 69 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_to_all_async) == 16 + 70 * sizeof(void*));
static_assert(offsetof(gw_api, gang_send) == 16 + 71 * sizeof(void*));
static_assert(offsetof(gw_api, gang_send_async) == 16 + 72 * sizeof(void*));
static_assert(offsetof(gw_api, gang_recv) == 16 + 73 * sizeof(void*));
static_assert(offsetof(gw_api, gang_recv_async) == 16 + 74 * sizeof(void*));
static_assert(offsetof(gw_api, gang_broadcast_bytes) == 16 + 75 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_gather_bytes) == 16 + 76 * sizeof(void*));
static_assert(offsetof(gw_api, gang_broadcast_flag) == 16 + 77 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_sum) == 16 + 78 * sizeof(void*));
static_assert(offsetof(gw_api, work_poll) == 16 + 79 * sizeof(void*));
static_assert(offsetof(gw_api, work_wait) == 16 + 80 * sizeof(void*));
static_assert(offsetof(gw_api, work_wait_many) == 16 + 81 * sizeof(void*));
static_assert(offsetof(gw_api, work_order) == 16 + 82 * sizeof(void*));
static_assert(offsetof(gw_api, work_error) == 16 + 83 * sizeof(void*));
static_assert(offsetof(gw_api, work_attach) == 16 + 84 * sizeof(void*));
static_assert(offsetof(gw_api, work_release) == 16 + 85 * sizeof(void*));
static_assert(offsetof(gw_api, gang_shutdown) == 16 + 86 * sizeof(void*));
static_assert(offsetof(gw_api, gang_abort) == 16 + 87 * sizeof(void*));
static_assert(offsetof(gw_api, gang_async_error) == 16 + 88 * sizeof(void*));
static_assert(offsetof(gw_api, gang_shrink) == 16 + 89 * sizeof(void*));
static_assert(offsetof(gw_api, gang_flight_record) == 16 + 90 * sizeof(void*));
static_assert(offsetof(gw_api, mesh_options_init) == 16 + 91 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_create) == 16 + 92 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_create_parallel) == 16 + 93 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_create_fsdp) == 16 + 94 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_create_fake) == 16 + 95 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_retain) == 16 + 96 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_release) == 16 + 97 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_get) == 16 + 98 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_coordinate) == 16 + 99 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_data_shard) == 16 + 100 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_shutdown) == 16 + 101 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_abort) == 16 + 102 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_push_current) == 16 + 103 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_pop_current) == 16 + 104 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_current) == 16 + 105 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_set_default) == 16 + 106 * sizeof(void*));
static_assert(offsetof(gw_api, linear_create) == 16 + 107 * sizeof(void*));
static_assert(offsetof(gw_api, embedding_create) == 16 + 108 * sizeof(void*));
static_assert(offsetof(gw_api, rmsnorm_create) == 16 + 109 * sizeof(void*));
static_assert(offsetof(gw_api, attention_options_init) == 16 + 110 * sizeof(void*));
static_assert(offsetof(gw_api, attention_create) == 16 + 111 * sizeof(void*));
static_assert(offsetof(gw_api, mlp_create) == 16 + 112 * sizeof(void*));
static_assert(offsetof(gw_api, block_create) == 16 + 113 * sizeof(void*));
static_assert(offsetof(gw_api, sequential_create) == 16 + 114 * sizeof(void*));
static_assert(offsetof(gw_api, init_options_init) == 16 + 115 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_options_init) == 16 + 116 * sizeof(void*));
static_assert(offsetof(gw_api, custom_options_init) == 16 + 117 * sizeof(void*));
static_assert(offsetof(gw_api, custom_create) == 16 + 118 * sizeof(void*));
static_assert(offsetof(gw_api, call_forward) == 16 + 119 * sizeof(void*));
static_assert(offsetof(gw_api, call_backward) == 16 + 120 * sizeof(void*));
static_assert(offsetof(gw_api, module_retain) == 16 + 121 * sizeof(void*));
static_assert(offsetof(gw_api, module_release) == 16 + 122 * sizeof(void*));
static_assert(offsetof(gw_api, module_materialize) == 16 + 123 * sizeof(void*));
static_assert(offsetof(gw_api, module_freeze) == 16 + 124 * sizeof(void*));
static_assert(offsetof(gw_api, frame_create) == 16 + 125 * sizeof(void*));
static_assert(offsetof(gw_api, frame_reset) == 16 + 126 * sizeof(void*));
static_assert(offsetof(gw_api, frame_release) == 16 + 127 * sizeof(void*));
static_assert(offsetof(gw_api, module_forward) == 16 + 128 * sizeof(void*));
static_assert(offsetof(gw_api, module_backward) == 16 + 129 * sizeof(void*));
static_assert(offsetof(gw_api, module_parameter_count) == 16 + 130 * sizeof(void*));
static_assert(offsetof(gw_api, module_parameter) == 16 + 131 * sizeof(void*));
static_assert(offsetof(gw_api, module_find_parameter) == 16 + 132 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_release) == 16 + 133 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_info_init) == 16 + 134 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_describe) == 16 + 135 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_view) == 16 + 136 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_state) == 16 + 137 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_gather) == 16 + 138 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_gather_gradient) == 16 + 139 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_assign) == 16 + 140 * sizeof(void*));
static_assert(offsetof(gw_api, memory_use_init) == 16 + 141 * sizeof(void*));
static_assert(offsetof(gw_api, module_memory) == 16 + 142 * sizeof(void*));
static_assert(offsetof(gw_api, save_options_init) == 16 + 143 * sizeof(void*));
static_assert(offsetof(gw_api, module_save) == 16 + 144 * sizeof(void*));
static_assert(offsetof(gw_api, load_options_init) == 16 + 145 * sizeof(void*));
static_assert(offsetof(gw_api, module_load) == 16 + 146 * sizeof(void*));
static_assert(offsetof(gw_api, dtype_rule_init) == 16 + 147 * sizeof(void*));
static_assert(offsetof(gw_api, shard_options_init) == 16 + 148 * sizeof(void*));
static_assert(offsetof(gw_api, parallel_options_init) == 16 + 149 * sizeof(void*));
static_assert(offsetof(gw_api, parallelize) == 16 + 150 * sizeof(void*));
static_assert(offsetof(gw_api, fully_shard) == 16 + 151 * sizeof(void*));
static_assert(offsetof(gw_api, replicate) == 16 + 152 * sizeof(void*));
static_assert(offsetof(gw_api, recompute) == 16 + 153 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_create) == 16 + 154 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_retain) == 16 + 155 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_release) == 16 + 156 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_unshard) == 16 + 157 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_unshard_async) == 16 + 158 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_reshard) == 16 + 159 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_view) == 16 + 160 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_add_gradient) == 16 + 161 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_reduce) == 16 + 162 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_begin_update) == 16 + 163 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_end_update) == 16 + 164 * sizeof(void*));
static_assert(offsetof(gw_api, module_from_groups) == 16 + 165 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_rule_init) == 16 + 166 * sizeof(void*));
static_assert(offsetof(gw_api, adamw_options_init) == 16 + 167 * sizeof(void*));
static_assert(offsetof(gw_api, sgd_options_init) == 16 + 168 * sizeof(void*));
static_assert(offsetof(gw_api, adamw_create) == 16 + 169 * sizeof(void*));
static_assert(offsetof(gw_api, sgd_create) == 16 + 170 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_retain) == 16 + 171 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_release) == 16 + 172 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_steps) == 16 + 173 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_lr) == 16 + 174 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_set_lr) == 16 + 175 * sizeof(void*));
static_assert(offsetof(gw_api, clip_grad_norm) == 16 + 176 * sizeof(void*));
static_assert(offsetof(gw_api, zero_grad) == 16 + 177 * sizeof(void*));
static_assert(offsetof(gw_api, batch_init) == 16 + 178 * sizeof(void*));
static_assert(offsetof(gw_api, step_options_init) == 16 + 179 * sizeof(void*));
static_assert(offsetof(gw_api, step_result_init) == 16 + 180 * sizeof(void*));
static_assert(offsetof(gw_api, train_step) == 16 + 181 * sizeof(void*));
static_assert(offsetof(gw_api, eval_step) == 16 + 182 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_step) == 16 + 183 * sizeof(void*));
static_assert(offsetof(gw_api, generate_options_init) == 16 + 184 * sizeof(void*));
static_assert(offsetof(gw_api, generate) == 16 + 185 * sizeof(void*));
static_assert(offsetof(gw_api, frame_options_init) == 16 + 186 * sizeof(void*));
static_assert(offsetof(gw_api, module_set_no_sync) == 16 + 187 * sizeof(void*));
static_assert(offsetof(gw_api, shard_group_tensor) == 16 + 188 * sizeof(void*));
static_assert(offsetof(gw_api, error_retain) == 16 + 189 * sizeof(void*));
static_assert(offsetof(gw_api, error_set) == 16 + 190 * sizeof(void*));
static_assert(offsetof(gw_api, bytes_retain) == 16 + 191 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_is_read_only) == 16 + 192 * sizeof(void*));
static_assert(offsetof(gw_api, store_retain) == 16 + 193 * sizeof(void*));
static_assert(offsetof(gw_api, work_retain) == 16 + 194 * sizeof(void*));
static_assert(offsetof(gw_api, frame_retain) == 16 + 195 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_retain) == 16 + 196 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_tensor) == 16 + 197 * sizeof(void*));
static_assert(offsetof(gw_api, parameter_state_tensor) == 16 + 198 * sizeof(void*));
static_assert(offsetof(gw_api, memory_info_init) == 16 + 199 * sizeof(void*));
static_assert(offsetof(gw_api, host_memory) == 16 + 200 * sizeof(void*));
static_assert(offsetof(gw_api, allocator_init) == 16 + 201 * sizeof(void*));
static_assert(offsetof(gw_api, allocator_set) == 16 + 202 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_gather_list_async) == 16 + 203 * sizeof(void*));
static_assert(offsetof(gw_api, gang_broadcast_flag_async) == 16 + 204 * sizeof(void*));
static_assert(offsetof(gw_api, gang_all_sum_async) == 16 + 205 * sizeof(void*));
static_assert(offsetof(gw_api, last_error_text) == 16 + 206 * sizeof(void*));
static_assert(offsetof(gw_api, partition_create) == 16 + 207 * sizeof(void*));
static_assert(offsetof(gw_api, partition_inclusive) == 16 + 208 * sizeof(void*));
static_assert(offsetof(gw_api, partition_union) == 16 + 209 * sizeof(void*));
static_assert(offsetof(gw_api, partition_cartesian) == 16 + 210 * sizeof(void*));
static_assert(offsetof(gw_api, partition_subtopology) == 16 + 211 * sizeof(void*));
static_assert(offsetof(gw_api, partition_retain) == 16 + 212 * sizeof(void*));
static_assert(offsetof(gw_api, partition_release) == 16 + 213 * sizeof(void*));
static_assert(offsetof(gw_api, partition_info_init) == 16 + 214 * sizeof(void*));
static_assert(offsetof(gw_api, partition_describe) == 16 + 215 * sizeof(void*));
static_assert(offsetof(gw_api, partition_neighbors) == 16 + 216 * sizeof(void*));
static_assert(offsetof(gw_api, movement_options_init) == 16 + 217 * sizeof(void*));
static_assert(offsetof(gw_api, movement_create) == 16 + 218 * sizeof(void*));
static_assert(offsetof(gw_api, movement_retain) == 16 + 219 * sizeof(void*));
static_assert(offsetof(gw_api, movement_release) == 16 + 220 * sizeof(void*));
static_assert(offsetof(gw_api, movement_forward) == 16 + 221 * sizeof(void*));
static_assert(offsetof(gw_api, movement_backward) == 16 + 222 * sizeof(void*));
static_assert(offsetof(gw_api, module_check_replicas) == 16 + 223 * sizeof(void*));
static_assert(offsetof(gw_api, mesh_options_preset) == 16 + 224 * sizeof(void*));
static_assert(offsetof(gw_api, gang_places_init) == 16 + 225 * sizeof(void*));
static_assert(offsetof(gw_api, gangs_create_of) == 16 + 226 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_options_init) == 16 + 227 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_create) == 16 + 228 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_retain) == 16 + 229 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_release) == 16 + 230 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_info_init) == 16 + 231 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_describe) == 16 + 232 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_stage_rank) == 16 + 233 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_set_training) == 16 + 234 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_action_init) == 16 + 235 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_next) == 16 + 236 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_done) == 16 + 237 * sizeof(void*));
static_assert(offsetof(gw_api, gang_probe) == 16 + 238 * sizeof(void*));
static_assert(offsetof(gw_api, plan_row_init) == 16 + 239 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_parallel_options_init) == 16 + 240 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_parallel) == 16 + 241 * sizeof(void*));
static_assert(offsetof(gw_api, context_parallel) == 16 + 242 * sizeof(void*));
static_assert(offsetof(gw_api, gang_begin_trace) == 16 + 243 * sizeof(void*));
static_assert(offsetof(gw_api, gang_end_trace) == 16 + 244 * sizeof(void*));
static_assert(offsetof(gw_api, pipeline_input) == 16 + 245 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_to_host) == 16 + 246 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_loss_scale) == 16 + 247 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_set_loss_scale) == 16 + 248 * sizeof(void*));
static_assert(offsetof(gw_api, tensor_order) == 16 + 249 * sizeof(void*));
static_assert(offsetof(gw_api, gang_alloc_tensor) == 16 + 250 * sizeof(void*));
static_assert(offsetof(gw_api, lion_options_init) == 16 + 251 * sizeof(void*));
static_assert(offsetof(gw_api, lion_create) == 16 + 252 * sizeof(void*));
static_assert(offsetof(gw_api, decoder_options_init) == 16 + 253 * sizeof(void*));
static_assert(offsetof(gw_api, decoder_options_from_family) == 16 + 254 * sizeof(void*));
static_assert(offsetof(gw_api, decoder_create) == 16 + 255 * sizeof(void*));
static_assert(offsetof(gw_api, decoder_options_from_folder) == 16 + 256 * sizeof(void*));
static_assert(offsetof(gw_api, model_from_folder) == 16 + 257 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_options_init) == 16 + 258 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_create) == 16 + 259 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_retain) == 16 + 260 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_release) == 16 + 261 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoint_part_init) == 16 + 262 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoint_text_init) == 16 + 263 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoint_state_init) == 16 + 264 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_due) == 16 + 265 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_save) == 16 + 266 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_wait) == 16 + 267 * sizeof(void*));
static_assert(offsetof(gw_api, restore_options_init) == 16 + 268 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_restore) == 16 + 269 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_text) == 16 + 270 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_user) == 16 + 271 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_notes) == 16 + 272 * sizeof(void*));
static_assert(offsetof(gw_api, checkpoints_buffer_bytes) == 16 + 273 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_load) == 16 + 274 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_create) == 16 + 275 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_set_steps) == 16 + 276 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_base_lr) == 16 + 277 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_finite_steps) == 16 + 278 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_restore_loss_scale) == 16 + 279 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_swap_ema) == 16 + 280 * sizeof(void*));
static_assert(offsetof(gw_api, adafactor_options_init) == 16 + 281 * sizeof(void*));
static_assert(offsetof(gw_api, adafactor_create) == 16 + 282 * sizeof(void*));
static_assert(offsetof(gw_api, adamw8bit_options_init) == 16 + 283 * sizeof(void*));
static_assert(offsetof(gw_api, adamw8bit_create) == 16 + 284 * sizeof(void*));
static_assert(offsetof(gw_api, muon_options_init) == 16 + 285 * sizeof(void*));
static_assert(offsetof(gw_api, muon_create) == 16 + 286 * sizeof(void*));
static_assert(offsetof(gw_api, custom_optimizer_options_init) == 16 + 287 * sizeof(void*));
static_assert(offsetof(gw_api, custom_optimizer_create) == 16 + 288 * sizeof(void*));
static_assert(offsetof(gw_api, optimizer_set_schedule) == 16 + 289 * sizeof(void*));
static_assert(offsetof(gw_api, data_source_init) == 16 + 290 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_options_init) == 16 + 291 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_create) == 16 + 292 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_retain) == 16 + 293 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_release) == 16 + 294 * sizeof(void*));
static_assert(offsetof(gw_api, data_batch_init) == 16 + 295 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_next) == 16 + 296 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_rows_per_epoch) == 16 + 297 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_rows_taken) == 16 + 298 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_batches_taken) == 16 + 299 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_set_rows_taken) == 16 + 300 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_position) == 16 + 301 * sizeof(void*));
static_assert(offsetof(gw_api, dataset_restore) == 16 + 302 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_row_init) == 16 + 303 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_options_init) == 16 + 304 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_create) == 16 + 305 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_retain) == 16 + 306 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_release) == 16 + 307 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_step_init) == 16 + 308 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_log) == 16 + 309 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_latest) == 16 + 310 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_log_evaluation) == 16 + 311 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_flush) == 16 + 312 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_position) == 16 + 313 * sizeof(void*));
static_assert(offsetof(gw_api, metrics_restore) == 16 + 314 * sizeof(void*));
static_assert(offsetof(gw_api, plan_options_init) == 16 + 315 * sizeof(void*));
static_assert(offsetof(gw_api, plan_memory) == 16 + 316 * sizeof(void*));
static_assert(offsetof(gw_api, movement_duplicate) == 16 + 317 * sizeof(void*));
static_assert(offsetof(gw_api, lora_options_init) == 16 + 318 * sizeof(void*));
static_assert(offsetof(gw_api, lora_apply) == 16 + 319 * sizeof(void*));
static_assert(offsetof(gw_api, lora_apply_folder) == 16 + 320 * sizeof(void*));
static_assert(offsetof(gw_api, lora_enable) == 16 + 321 * sizeof(void*));
static_assert(offsetof(gw_api, lora_save) == 16 + 322 * sizeof(void*));
static_assert(offsetof(gw_api, lora_load) == 16 + 323 * sizeof(void*));
static_assert(offsetof(gw_api, lora_merge) == 16 + 324 * sizeof(void*));
static_assert(offsetof(gw_api, verify_options_init) == 16 + 325 * sizeof(void*));
static_assert(offsetof(gw_api, verify_result_init) == 16 + 326 * sizeof(void*));
static_assert(offsetof(gw_api, verify) == 16 + 327 * sizeof(void*));
static_assert(offsetof(gw_api, layernorm_create) == 16 + 328 * sizeof(void*));
static_assert(offsetof(gw_api, feed_forward_options_init) == 16 + 329 * sizeof(void*));
static_assert(offsetof(gw_api, feed_forward_create) == 16 + 330 * sizeof(void*));
static_assert(offsetof(gw_api, activation_create) == 16 + 331 * sizeof(void*));
static_assert(offsetof(gw_api, dropout_create) == 16 + 332 * sizeof(void*));
static_assert(offsetof(gw_api, module_gradient_norms) == 16 + 333 * sizeof(void*));
static_assert(offsetof(gw_api, log_probs) == 16 + 334 * sizeof(void*));
static_assert(offsetof(gw_api, generate_rows) == 16 + 335 * sizeof(void*));
static_assert(offsetof(gw_api, verify_groups) == 16 + 336 * sizeof(void*));
static_assert(offsetof(gw_api, fp8_options_init) == 16 + 337 * sizeof(void*));
static_assert(offsetof(gw_api, fp8_apply) == 16 + 338 * sizeof(void*));
static_assert(offsetof(gw_api, struct_size) == 0 && offsetof(gw_api, abi_major) == 8 && offsetof(gw_api, abi_minor) == 12);

}  // namespace

const gw_api *gw_get_api(int32_t abi_minor) {
  return abi_minor >= 0 && abi_minor <= gangway::capi::kAbiMinor ? &kApi : nullptr;
}
