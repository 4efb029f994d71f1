/* Parameters of a model by index and by name, facts about them, and the memory that a model takes. */
#include "models.h"

static void a_models_parameters_are_found_by_index_and_by_name(void** state) {
  (void)state;
  gw_module* model = NULL;
  gw_decoder_options o = small_llama();
  o.tied = 1;
  assert_ok(gw_decoder_create(&o, &model));
  gw_parameter *described = NULL, *p = NULL;
  gw_view view;
  assert_ok(gw_module_find_parameter(model, "model.layers.0.self_attn.q_proj.weight", &described));
  assert_refused_as(gw_parameter_view(described, GW_PART_VALUE, &view), GW_E_INVALID_STATE,
                    "gw_module_materialize");
  assert_ok(gw_module_freeze(model, "model.norm.weight"));
  assert_refused_as(gw_module_freeze(model, "nothing.*"), GW_E_NOT_FOUND, "nothing.*");
  gw_frame* frame = NULL;
  assert_refused_as(gw_frame_create(model, NULL, &frame), GW_E_INVALID_STATE, "gw_module_materialize");
  assert_ok(gw_module_materialize(model, NULL, 1, GW_DTYPE_NONE));
  assert_refused_as(gw_module_freeze(model, "*"), GW_E_INVALID_STATE, "before");
  size_t count = 0;
  assert_ok(gw_module_parameter_count(model, &count));
  assert_int_equal(count, 11);                                      /* the head is the embedding */
  assert_ok(gw_module_find_parameter(model, "lm_head.weight", &p)); /* an alias */
  gw_parameter_info info;
  gw_parameter_info_init(&info, sizeof info);
  assert_ok(gw_parameter_describe(p, &info));
  assert_int_equal(info.ndim, 2);
  assert_int_equal(info.dims[0], 11);
  assert_int_equal(info.dims[1], 8);
  assert_int_equal(info.dtype, GW_F32);
  assert_int_equal(info.trainable, 1);
  assert_int_equal(info.is_buffer, 0);
  assert_int_equal(info.first_row, 0);
  assert_int_equal(info.last_row, 11);
  const char *const layout = info.layout, *const name = info.name;
  assert_ok(gw_parameter_describe(p, &info));
  assert_ptr_equal(layout, info.layout); /* texts keep their addresses */
  assert_ptr_equal(name, info.name);
  assert_ok(gw_parameter_view(p, GW_PART_VALUE, &view));
  assert_int_equal(view.shape[0], 11);
  assert_refused(gw_parameter_view(p, 4, &view), "part is 4");
  assert_refused(gw_parameter_view(p, GW_PART_INVALID, &view), "part is -1");
  gw_parameter_release(p);
  assert_ok(gw_module_find_parameter(model, "model.norm.weight", &p));
  gw_tensor* tensor = NULL;
  assert_refused_as(gw_parameter_view(p, GW_PART_GRADIENT, &view), GW_E_INVALID_STATE, "frozen");
  assert_refused_as(gw_parameter_gather_gradient(p, NULL, &tensor), GW_E_INVALID_STATE, "frozen");
  assert_null(tensor);
  assert_ok(gw_parameter_gather(p, NULL, &tensor));
  assert_ok(gw_tensor_view(tensor, &view));
  assert_true(at(&view, 0) == 1.0f); /* a norm's weight starts with ones */
  gw_tensor_release(tensor);
  gw_parameter_release(p);
  assert_refused_as(gw_module_find_parameter(model, "no.such", &p), GW_E_NOT_FOUND, "no.such");
  assert_null(p);
  assert_ok(gw_module_parameter(model, 0, &p));
  gw_parameter_release(p);
  assert_refused(gw_module_parameter(model, 11, &p), "index is 11, the model has 11");
  gw_memory_use use;
  gw_memory_use_init(&use, sizeof use);
  assert_ok(gw_module_memory(model, &use));
  assert_true(use.master > 0);
  assert_refused(gw_module_memory(model, NULL), "memory is null");
  gw_parameter_release(described);
  gw_module_release(model);
}

static gw_memory_use memory_of(gw_module* model) {
  gw_memory_use use;
  gw_memory_use_init(&use, sizeof use);
  assert_ok(gw_module_memory(model, &use));
  return use;
}

/* 6 x 4 and 6 values in bf16 beside their masters. The memory of an optimizer counts until its release. */
static void memory_counts_copies_and_optimizer_state(void** state) {
  (void)state;
  gw_module* model = NULL;
  gw_optimizer *adamw = NULL, *sgd = NULL;
  gw_parallel_options p;
  gw_shard_options shard;
  gw_sgd_options s;
  gw_parallel_options_init(&p, sizeof p);
  gw_shard_options_init(&shard, sizeof shard);
  gw_sgd_options_init(&s, sizeof s);
  p.shard = &shard;
  shard.param_dtype = GW_BF16;
  s.momentum = 0.9;
  assert_ok(gw_linear_create(4, 6, 1, &model));
  assert_ok(gw_parallelize(model, NULL, &p));
  gw_memory_use use = memory_of(model);
  /* 48 and 12 bytes, each rounded up to a multiple of 64. */
  assert_int_equal(use.copies, 64 + 64);
  assert_int_equal(use.optimizer, 0);
  assert_ok(gw_adamw_create(model, NULL, &adamw));
  assert_int_equal(memory_of(model).optimizer, 2 * 30 * 4);
  assert_ok(gw_sgd_create(model, &s, &sgd));
  assert_int_equal(memory_of(model).optimizer, 3 * 30 * 4);
  gw_optimizer_release(adamw);
  assert_int_equal(memory_of(model).optimizer, 30 * 4);
  gw_optimizer_release(sgd);
  assert_int_equal(memory_of(model).optimizer, 0);
  gw_module_release(model);
}

/* Handles of a parameter's parts outlive the handles of the parameter, the model and the optimizer. */
static void parts_and_states_come_with_handles_that_keep_them(void** state) {
  (void)state;
  gw_module* model = materialized_llama();
  gw_optimizer* opt = NULL;
  gw_parameter* p = NULL;
  gw_tensor *value = NULL, *moment = NULL, *none = NULL;
  gw_view view, kept;
  small_batch b;
  fill_batch(&b, 2, 0);
  assert_ok(gw_adamw_create(model, NULL, &opt));
  assert_ok(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
  assert_ok(gw_module_find_parameter(model, "lm_head.weight", &p));
  assert_refused(gw_parameter_tensor(NULL, GW_PART_VALUE, &none), "parameter is null");
  assert_refused(gw_parameter_tensor(p, GW_PART_VALUE, NULL), "out_tensor is null");
  assert_refused(gw_parameter_tensor(p, 4, &none), "part is 4");
  assert_refused(gw_parameter_state_tensor(NULL, opt, "exp_avg", &none), "parameter is null");
  assert_refused(gw_parameter_state_tensor(p, NULL, "exp_avg", &none), "optimizer is null");
  assert_refused(gw_parameter_state_tensor(p, opt, NULL, &none), "name is null");
  assert_refused(gw_parameter_state_tensor(p, opt, "exp_avg", NULL), "out_tensor is null");
  assert_refused_as(gw_parameter_state_tensor(p, opt, "momentum", &none), GW_E_NOT_FOUND, "momentum");
  assert_null(none);
  assert_ok(gw_parameter_tensor(p, GW_PART_VALUE, &value));
  assert_ok(gw_parameter_state_tensor(p, opt, "exp_avg", &moment));
  assert_int_equal(gw_tensor_is_read_only(value), 0);
  assert_ok(gw_parameter_view(p, GW_PART_VALUE, &view));
  assert_ok(gw_tensor_view(value, &kept));
  assert_ptr_equal(view.data, kept.data); /* no copy */
  assert_ok(gw_parameter_state(p, opt, "exp_avg", &view));
  assert_ok(gw_tensor_view(moment, &kept));
  assert_ptr_equal(view.data, kept.data);
  const double before = at(&kept, 8);
  assert_true(before != 0);
  assert_ptr_equal(gw_parameter_retain(p), p);
  assert_null(gw_parameter_retain(NULL));
  gw_parameter_release(p);
  gw_parameter_release(p);
  gw_optimizer_release(opt);
  gw_module_release(model);
  assert_ok(gw_tensor_view(moment, &kept));
  assert_true(at(&kept, 8) == before);
  gw_tensor_release(value);
  gw_tensor_release(moment);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(a_models_parameters_are_found_by_index_and_by_name),
                                     test_on_device(parts_and_states_come_with_handles_that_keep_them),
                                     test_on_device(memory_counts_copies_and_optimizer_state)};
  return cmocka_run_group_tests_name("capi_inspect", tests, NULL, NULL);
}
