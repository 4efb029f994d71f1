#include "models.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static gw_module* materialized_llama(void) {
  gw_module* model = NULL;
  const gw_llama_options o = small_llama();
  assert_ok(gw_llama_create(&o, &model));
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  return model;
}

/* y = x W^T + b with W and b set by hand. */
static void linear_gives_known_values_and_gradients(void** state) {
  (void)state;
  gw_module* model = NULL;
  assert_ok(gw_linear_create(2, 3, 1, &model));
  assert_ok(gw_module_materialize(model, NULL, 7, GW_F64));
  double w[6] = {1, 2, 3, 4, 5, 6}, b[3] = {10, 20, 30}, x[4] = {1, 1, 2, -1}, dy[6] = {1, 0, 0, 0, 1, 1};
  const int64_t w_shape[2] = {3, 2}, b_shape[1] = {3}, x_shape[2] = {2, 2}, y_shape[2] = {2, 3};
  gw_view view, got;
  gw_parameter *weight = NULL, *bias = NULL;
  assert_ok(gw_module_find_parameter(model, "weight", &weight));
  assert_ok(gw_module_find_parameter(model, "bias", &bias));
  gw_view_set(&view, w, w_shape, 2, GW_F64);
  assert_ok(gw_parameter_assign(weight, &view, NULL));
  assert_refused(gw_parameter_assign(bias, &view, NULL), "[3, 2]");
  gw_view_set(&view, b, b_shape, 1, GW_F64);
  assert_ok(gw_parameter_assign(bias, &view, NULL));
  gw_frame* frame = NULL;
  gw_frame_options fo;
  gw_frame_options_init(&fo, sizeof fo);
  assert_ok(gw_frame_create(model, &fo, &frame));
  gw_tensor* out[2] = {(gw_tensor*)w, (gw_tensor*)w};
  size_t count = 9;
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 2, &count));
  assert_int_equal(count, 1);
  assert_null(out[1]);
  assert_ok(gw_tensor_view(out[0], &got));
  const double y[6] = {13, 27, 41, 10, 22, 34};
  assert_int_equal(got.dtype, GW_F64);
  for (int i = 0; i < 6; ++i) assert_true(fabs(((double*)got.data)[i] - y[i]) < 1e-12);
  gw_tensor_release(out[0]);
  gw_view_set(&view, dy, y_shape, 2, GW_F64);
  assert_ok(gw_module_backward(model, &view, 1, frame, NULL, out, 2, &count));
  assert_int_equal(count, 1);
  assert_ok(gw_tensor_view(out[0], &got));
  const double dx[4] = {1, 2, 8, 10}; /* dy W */
  for (int i = 0; i < 4; ++i) assert_true(fabs(((double*)got.data)[i] - dx[i]) < 1e-12);
  gw_tensor_release(out[0]);
  gw_tensor* gradient = NULL;
  assert_ok(gw_parameter_gather_gradient(weight, NULL, &gradient));
  assert_ok(gw_tensor_view(gradient, &got));
  const double dw[6] = {1, 1, 2, -1, 2, -1}; /* dy^T x */
  for (int i = 0; i < 6; ++i) assert_true(fabs(((double*)got.data)[i] - dw[i]) < 1e-12);
  gw_tensor_release(gradient);
  /* Evaluation: no frame. The frame can be used again. */
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_ok(gw_module_forward(model, &view, 1, NULL, NULL, out, 1, &count));
  gw_tensor_release(out[0]);
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 1, &count));
  gw_tensor_release(out[0]);
  assert_ok(gw_frame_reset(frame));
  assert_ok(gw_module_set_no_sync(model, 1));
  assert_ok(gw_module_set_no_sync(model, 0));
  /* Too small an array: a refusal that says the number, and null handles. */
  out[0] = (gw_tensor*)w;
  assert_refused(gw_module_forward(model, &view, 1, NULL, NULL, NULL, 0, &count),
                 "1 outputs, out_capacity is 0");
  assert_int_equal(count, 0);
  /* A model's parameters, frames and copies outlive its handle. */
  gw_module_release(model);
  gw_tensor* whole = NULL;
  assert_ok(gw_parameter_gather(weight, NULL, &whole));
  gw_parameter_release(weight);
  gw_parameter_release(bias);
  gw_frame_release(frame);
  assert_ok(gw_tensor_view(whole, &got));
  assert_true(((double*)got.data)[5] == 6);
  gw_tensor_release(whole);
}

static void layers_have_the_documented_shapes(void** state) {
  (void)state;
  gw_module* m[6] = {NULL};
  gw_attention_options a;
  gw_attention_options_init(&a, sizeof a);
  a.dim = 8;
  a.heads = 2;
  assert_int_equal(a.causal, 1);
  assert_ok(gw_embedding_create(5, 8, &m[0]));
  assert_ok(gw_rmsnorm_create(8, 1e-5, &m[1]));
  assert_ok(gw_attention_create(&a, &m[2]));
  assert_ok(gw_mlp_create(8, 16, 0, &m[3]));
  assert_ok(gw_block_create(&a, 16, 1e-5, &m[4]));
  static const size_t counts[5] = {1, 1, 4, 3, 9};
  for (int i = 0; i < 5; ++i) {
    size_t count = 0;
    assert_ok(gw_module_parameter_count(m[i], &count));
    assert_int_equal(count, counts[i]);
  }
  /* One after the other: embedding, then a linear layer. */
  assert_ok(gw_linear_create(8, 3, 0, &m[5]));
  gw_module* const parts[2] = {m[0], m[5]};
  gw_module* sequential = NULL;
  assert_ok(gw_sequential_create(parts, 2, &sequential));
  for (int i = 0; i < 6; ++i) gw_module_release(m[i]);
  assert_ok(gw_module_materialize(sequential, NULL, 3, GW_DTYPE_NONE));
  int64_t ids[4] = {0, 1, 4, 1};
  const int64_t shape[2] = {2, 2};
  gw_view view, got;
  gw_view_set(&view, ids, shape, 2, GW_I64);
  gw_tensor* out = NULL;
  size_t count = 0;
  assert_ok(gw_module_forward(sequential, &view, 1, NULL, NULL, &out, 1, &count));
  assert_ok(gw_tensor_view(out, &got));
  assert_int_equal(got.ndim, 3);
  assert_int_equal(got.shape[2], 3);
  for (int i = 0; i < 3; ++i) assert_true(((float*)got.data)[3 + i] == ((float*)got.data)[9 + i]);
  gw_tensor_release(out);
  gw_module* again = NULL;
  gw_module* const bound[1] = {sequential};
  assert_refused_as(gw_sequential_create(bound, 1, &again), GW_E_INVALID_STATE, "models[0] is bound");
  assert_ptr_equal(gw_module_retain(sequential), sequential);
  gw_module_release(sequential);
  gw_module_release(sequential);
}

static void bad_layers_are_refused(void** state) {
  (void)state;
  gw_module* m = NULL;
  gw_llama_options l = small_llama();
  gw_attention_options a;
  assert_refused((l.heads = 3, gw_llama_create(&l, &m)), "3");
  l = small_llama();
  assert_refused((l.kv_heads = 3, gw_llama_create(&l, &m)), "3");
  l = small_llama();
  assert_refused((l.layers = -1, gw_llama_create(&l, &m)), "-1");
  l = small_llama();
  assert_refused((l.vocab = 0, gw_llama_create(&l, &m)), "0");
  assert_refused(gw_llama_create(NULL, NULL), "out_model is null");
  assert_refused(gw_linear_create(0, 3, 0, &m), "0");
  assert_refused(gw_linear_create(1, 3, 0, NULL), "out_model is null");
  assert_refused(gw_embedding_create(-4, 3, &m), "-4");
  assert_refused(gw_embedding_create(4, 3, NULL), "out_model is null");
  assert_refused(gw_rmsnorm_create(0, 1e-5, &m), "0");
  assert_refused(gw_rmsnorm_create(1, 1e-5, NULL), "out_model is null");
  gw_attention_options_init(&a, sizeof a);
  assert_refused(gw_attention_create(&a, &m), "0");
  assert_refused(gw_attention_create(NULL, &m), "options is null");
  assert_refused(gw_attention_create(&a, NULL), "out_model is null");
  assert_refused(gw_mlp_create(8, 0, 0, &m), "0");
  assert_refused(gw_mlp_create(8, 8, 0, NULL), "out_model is null");
  assert_refused(gw_block_create(NULL, 8, 1e-5, &m), "options is null");
  assert_refused(gw_block_create(&a, 8, 1e-5, NULL), "out_model is null");
  assert_refused(gw_sequential_create(NULL, 0, &m), "0 modules");
  assert_refused(gw_sequential_create(NULL, 1, &m), "models is null");
  assert_refused(gw_sequential_create(&m, 1, &m), "models[0] is null");
  assert_refused(gw_sequential_create(&m, 1, NULL), "out_model is null");
  assert_null(m);
  gw_llama_options_init(NULL, 0);
  gw_attention_options_init(NULL, 0);
}

static void looking_into_a_model(void** state) {
  (void)state;
  gw_module* model = NULL;
  gw_llama_options o = small_llama();
  o.tied = 1;
  assert_ok(gw_llama_create(&o, &model));
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
  assert_ptr_equal(layout, info.layout); /* texts stay where they are */
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
  assert_true(((float*)view.data)[0] == 1.0f); /* a norm starts with ones */
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

static void nulls_are_refused(void** state) {
  (void)state;
  gw_module* model = materialized_llama();
  gw_parameter* p = NULL;
  gw_tensor* t = NULL;
  gw_view view;
  gw_frame* frame = NULL;
  size_t count = 0;
  gw_parameter_info info;
  gw_memory_use use;
  gw_parameter_info_init(&info, sizeof info);
  gw_memory_use_init(&use, sizeof use);
  assert_refused(gw_module_materialize(NULL, NULL, 0, 0), "model is null");
  assert_refused(gw_module_freeze(NULL, "*"), "model is null");
  assert_refused(gw_module_freeze(model, NULL), "pattern is null");
  assert_refused(gw_frame_create(NULL, NULL, &frame), "model is null");
  assert_refused(gw_frame_create(model, NULL, NULL), "out_frame is null");
  assert_refused(gw_frame_reset(NULL), "frame is null");
  gw_frame_release(NULL);
  assert_refused(gw_module_forward(NULL, NULL, 0, NULL, NULL, &t, 1, &count), "model is null");
  assert_refused(gw_module_forward(model, NULL, 1, NULL, NULL, &t, 1, &count), "inputs is null");
  assert_refused(gw_module_forward(model, NULL, 1, NULL, NULL, NULL, 1, &count), "out_tensors is null");
  assert_refused(gw_module_forward(model, NULL, 0, NULL, NULL, &t, 1, NULL), "out_count is null");
  assert_refused(gw_module_backward(NULL, NULL, 0, NULL, NULL, &t, 1, &count), "model is null");
  assert_refused(gw_module_backward(model, NULL, 0, NULL, NULL, &t, 1, &count), "frame is null");
  assert_refused(gw_module_backward(model, NULL, 0, NULL, NULL, &t, 1, NULL), "out_count is null");
  assert_refused(gw_module_set_no_sync(NULL, 0), "model is null");
  assert_refused(gw_module_parameter_count(NULL, &count), "model is null");
  assert_refused(gw_module_parameter_count(model, NULL), "out_count is null");
  assert_refused(gw_module_parameter(NULL, 0, &p), "model is null");
  assert_refused(gw_module_parameter(model, 0, NULL), "out_parameter is null");
  assert_refused(gw_module_find_parameter(NULL, "x", &p), "model is null");
  assert_refused(gw_module_find_parameter(model, NULL, &p), "name is null");
  assert_refused(gw_module_find_parameter(model, "x", NULL), "out_parameter is null");
  assert_refused(gw_parameter_describe(NULL, &info), "parameter is null");
  assert_ok(gw_module_parameter(model, 0, &p));
  assert_refused(gw_parameter_describe(p, NULL), "info is null");
  assert_refused(gw_parameter_view(NULL, GW_PART_VALUE, &view), "parameter is null");
  assert_refused(gw_parameter_view(p, GW_PART_VALUE, NULL), "out_view is null");
  assert_refused(gw_parameter_gather(NULL, NULL, &t), "parameter is null");
  assert_refused(gw_parameter_gather(p, NULL, NULL), "out_tensor is null");
  assert_refused(gw_parameter_gather_gradient(NULL, NULL, &t), "parameter is null");
  assert_refused(gw_parameter_gather_gradient(p, NULL, NULL), "out_tensor is null");
  assert_refused(gw_parameter_assign(NULL, &view, NULL), "parameter is null");
  assert_refused(gw_parameter_assign(p, NULL, NULL), "whole is null");
  assert_refused(gw_parameter_gather(p, &view, &t), "stream is not null");
  gw_parameter_release(p);
  gw_parameter_release(NULL);
  assert_refused(gw_module_memory(NULL, &use), "model is null");
  assert_refused(gw_module_save(NULL, "x", NULL), "model is null");
  assert_refused(gw_module_save(model, NULL, NULL), "folder is null");
  assert_refused(gw_module_load(NULL, "x", NULL), "model is null");
  assert_refused(gw_module_load(model, NULL, NULL), "path is null");
  assert_refused_as(gw_module_load(model, "/nonexistent/model", NULL), GW_E_IO, "/nonexistent/model");
  gw_module_release(model);
  gw_module_release(NULL);
  assert_null(gw_module_retain(NULL));
}

static void a_frame_belongs_to_its_model(void** state) {
  (void)state;
  gw_module *a = materialized_llama(), *b = materialized_llama();
  gw_frame* frame = NULL;
  gw_tensor* out = NULL;
  size_t count = 0;
  small_batch batch;
  fill_batch(&batch, 1, 0);
  assert_ok(gw_frame_create(a, NULL, &frame));
  assert_refused(gw_module_forward(b, &batch.input, 1, frame, NULL, &out, 1, &count), "another model");
  assert_refused(gw_module_backward(b, NULL, 0, frame, NULL, &out, 1, &count), "another model");
  gw_view bad = batch.input;
  const int64_t strides[2] = {8, 2};
  bad.strides = strides;
  assert_refused(gw_module_forward(a, &bad, 1, frame, NULL, &out, 1, &count), "not contiguous");
  batch.tokens[2] = 99; /* outside of the vocabulary */
  assert_refused(gw_module_forward(a, &batch.input, 1, NULL, NULL, &out, 1, &count), "99");
  gw_frame_release(frame);
  gw_module_release(a);
  gw_module_release(b);
}

/* --- files
 * ----------------------------------------------------------------------------------------------------------
 */

static void saves_and_loads(rank* me) {
  const gw_llama_options o = small_llama();
  gw_gangs* gangs = NULL;
  gw_module *a = NULL, *b = NULL;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = 5;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_llama_create(&o, &a));
  EXPECT_OK(gw_parallelize(a, gangs, &p));
  gw_save_options so;
  gw_save_options_init(&so, sizeof so);
  EXPECT_REFUSED(gw_module_save(a, me->index == me->size - 1 ? NULL : me->user, &so), "folder is null");
  so.dtype = GW_I32;
  EXPECT_REFUSED(gw_module_save(a, me->user, &so), "i32");
  so.dtype = GW_DTYPE_NONE;
  EXPECT_OK(gw_module_save(a, me->user, &so));
  EXPECT_OK(gw_llama_create(&o, &b));
  p.seed = 6;
  EXPECT_OK(gw_parallelize(b, gangs, &p));
  gw_load_options lo;
  gw_load_options_init(&lo, sizeof lo);
  EXPECT_REFUSED(gw_module_load(b, me->index == me->size - 1 ? NULL : me->user, &lo), "path is null");
  EXPECT_OK(gw_module_load(b, me->user, &lo));
  size_t count = 0;
  EXPECT_OK(gw_module_parameter_count(a, &count));
  for (size_t i = 0; i < count; ++i) {
    gw_parameter *from = NULL, *to = NULL;
    gw_tensor *x = NULL, *y = NULL;
    gw_view v, w;
    EXPECT_OK(gw_module_parameter(a, i, &from));
    EXPECT_OK(gw_module_parameter(b, i, &to));
    EXPECT_OK(gw_parameter_gather(from, NULL, &x));
    EXPECT_OK(gw_parameter_gather(to, NULL, &y));
    EXPECT_OK(gw_tensor_view(x, &v));
    EXPECT_OK(gw_tensor_view(y, &w));
    size_t bytes = gw_dtype_bytes(v.dtype);
    for (int32_t d = 0; d < v.ndim; ++d) bytes *= (size_t)v.shape[d];
    EXPECT(memcmp(v.data, w.data, bytes) == 0);
    gw_tensor_release(x);
    gw_tensor_release(y);
    gw_parameter_release(from);
    gw_parameter_release(to);
  }
  gw_module_release(a);
  gw_module_release(b);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void what_is_saved_is_loaded(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) {
    char folder[] = "/tmp/gangway-model-XXXXXX", file[80], command[80];
    assert_non_null(mkdtemp(folder));
    run_ranks(n, saves_and_loads, folder);
    struct stat found;
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(stat(file, &found), 0);
    snprintf(file, sizeof file, "%s/config.json", folder);
    assert_int_equal(stat(file, &found), 0);
    /* A file that is cut off. */
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(truncate(file, 100), 0);
    gw_module* model = materialized_llama();
    assert_refused_as(gw_module_load(model, folder, NULL), GW_E_CORRUPT, "model.safetensors");
    gw_module_release(model);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
  }
}

/* --- custom modules
 * ------------------------------------------------------------------------------------------------- */

static void custom_module_runs_and_frees_once(void** state) {
  (void)state;
  line l = {0};
  int freed = 0;
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  line_parameter(&p, &init, &freed);
  line_options(&c, &l, &p);
  gw_module* model = NULL;
  assert_ok(gw_custom_create(&c, &model));
  memset(&c, 0xff, sizeof c); /* everything was copied */
  memset(&p, 0xff, sizeof p);
  memset(&init, 0xff, sizeof init);
  assert_ok(gw_module_materialize(model, NULL, 0, GW_DTYPE_NONE));
  gw_frame_options fo;
  gw_frame_options_init(&fo, sizeof fo);
  fo.loss_seed = 0.5;
  gw_frame* frame = NULL;
  assert_ok(gw_frame_create(model, &fo, &frame));
  float x[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  gw_view view, got;
  gw_view_set(&view, x, shape, 1, GW_F32);
  gw_tensor* out[2];
  size_t count = 0;
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 2, &count));
  assert_int_equal(count, 2);
  assert_ok(gw_tensor_view(out[0], &got));
  assert_true(*(double*)got.data == 12); /* w = 2 of the initialiser */
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  assert_ok(gw_module_backward(model, NULL, 0, frame, NULL, out, 2, &count));
  for (size_t i = 0; i < count; ++i) gw_tensor_release(out[i]);
  assert_true(l.seed_seen == 0.5);
  assert_true(l.forwards == 1 && l.inputs == 1 && l.weights == 1);
  gw_parameter* w = NULL;
  gw_tensor* gradient = NULL;
  assert_ok(gw_module_find_parameter(model, "w", &w));
  assert_ok(gw_parameter_gather_gradient(w, NULL, &gradient));
  assert_ok(gw_tensor_view(gradient, &got));
  assert_true(*(float*)got.data == 3.0f); /* sum of x times the seed */
  gw_tensor_release(gradient);
  /* A callback's failure: its code, the module's name and the callback's. */
  l.fail_forward = GW_E_CALLER;
  assert_refused_as(gw_module_forward(model, &view, 1, NULL, NULL, out, 2, &count), GW_E_CALLER, "line");
  assert_non_null(strstr(last_error().message, "forward"));
  l.fail_forward = 4711; /* no status of ours */
  assert_refused_as(gw_module_forward(model, &view, 1, NULL, NULL, out, 2, &count), GW_E_CALLER, "4711");
  l.fail_forward = 0;
  /* State of a forward without backward is freed with the frame (the leak check sees it). */
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 2, &count));
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  gw_module_release(model);
  assert_int_equal(l.frees, 0); /* the frame and the parameter hold it */
  gw_frame_release(frame);
  gw_parameter_release(w);
  assert_int_equal(l.frees, 1);
  assert_int_equal(freed, 1);
}

static void refused_custom_modules_free_once(void** state) {
  (void)state;
  line l = {0};
  int freed[3] = {0, 0, 0};
  gw_init_options init[3];
  gw_parameter_options p[3];
  gw_custom_options c;
  gw_module* model = NULL;
  int calls = 0;
#define REFUSED_WITH(change, part)                                              \
  for (int i_ = 0; i_ < 3; ++i_) line_parameter(&p[i_], &init[i_], &freed[i_]); \
  p[0].name = "a";                                                              \
  p[1].name = "b";                                                              \
  line_options(&c, &l, p);                                                      \
  c.parameter_count = 3;                                                        \
  change;                                                                       \
  assert_refused(gw_custom_create(&c, &model), part);                           \
  assert_null(model);                                                           \
  ++calls;                                                                      \
  assert_int_equal(l.frees, calls);                                             \
  for (int i_ = 0; i_ < 3; ++i_) assert_int_equal(freed[i_], calls)
  REFUSED_WITH(c.shapes = NULL, "shapes, forward and backward_input");
  REFUSED_WITH(c.forward = NULL, "shapes, forward and backward_input");
  REFUSED_WITH(c.backward_input = NULL, "shapes, forward and backward_input");
  REFUSED_WITH(c.input_count = 0, "input_count is 0");
  REFUSED_WITH(c.output_count = -1, "output_count is -1");
  REFUSED_WITH(p[1].name = NULL, "name is null");
  REFUSED_WITH(p[1].ndim = 9, "ndim 9");
  REFUSED_WITH(p[1].dims[0] = -2, "-2");
  REFUSED_WITH(init[2].kind = 7, "kind is 7");
  REFUSED_WITH(init[0].fill = NULL, "fill is null");
  REFUSED_WITH((init[1].kind = GW_INIT_NORMAL, init[1].deviation = -1), "deviation is -1");
  REFUSED_WITH(c.child_count = 1, "children is null");
  REFUSED_WITH(p[2].name = "a", "\"a\" stands twice");
#undef REFUSED_WITH
  /* One initialiser for all of them is one object. */
  for (int i = 0; i < 3; ++i) line_parameter(&p[i], &init[0], &freed[0]);
  p[0].name = "a";
  p[1].name = "b";
  line_options(&c, &l, p);
  c.parameter_count = 3;
  assert_ok(gw_custom_create(&c, &model));
  assert_int_equal(freed[0], calls);
  gw_module_release(model);
  assert_int_equal(freed[0], calls + 1);
  assert_refused(
      (line_options(&c, &l, p), c.parameter_count = 3, p[2].ndim = -1, gw_custom_create(&c, &model)), "-1");
  assert_int_equal(freed[0], calls + 2);
  /* An object beside a built-in initialiser is freed too. */
  line_parameter(&p[0], &init[0], &freed[1]);
  init[0].kind = GW_INIT_ONES;
  line_options(&c, &l, p);
  const int before = freed[1];
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(model);
  assert_int_equal(freed[1], before + 1);
  const int frees = l.frees;
  line_options(&c, &l, p);
  assert_refused(gw_custom_create(&c, NULL), "out_model is null");
  assert_int_equal(l.frees, frees + 1);
  assert_refused(gw_custom_create(NULL, &model), "options is null");
}

/* A custom module that only passes through a child, with the library's calls inside of callbacks. */
typedef struct parent {
  gw_status wrong_child, wrong_capacity, null_views, backward_in_forward;
} parent;
static gw_status parent_shapes(void* user, gw_call* call) {
  (void)user;
  (void)call; /* outputs look like the first input */
  return GW_OK;
}
static gw_status parent_forward(void* user, gw_call* call) {
  parent* p = user;
  gw_view out;
  p->wrong_child = gw_call_forward(call, 3, call->inputs, 1, &out, 1);
  p->backward_in_forward = gw_call_backward(NULL, 0, NULL, 0, &out, 1);
  const gw_status status = gw_call_forward(call, 0, call->inputs, 1, &out, 1);
  if (status != GW_OK) return status;
  memcpy(call->outputs[0].data, out.data, (size_t)(out.shape[0] * out.shape[1]) * sizeof(double));
  return GW_OK;
}
static gw_status parent_backward(void* user, gw_call* call) {
  parent* p = user;
  gw_view grads;
  p->wrong_capacity = GW_OK;
  const gw_status status = gw_call_backward(call, 0, call->output_grads, 1, &grads, 1);
  if (status != GW_OK) return status;
  if (call->input_grads[0].data != NULL)
    memcpy(call->input_grads[0].data, grads.data, (size_t)(grads.shape[0] * grads.shape[1]) * sizeof(double));
  return GW_OK;
}
/* Passes on a failure of a call it makes. */
static gw_status parent_fails(void* user, gw_call* call) {
  (void)user;
  gw_view out;
  return gw_call_forward(call, 3, call->inputs, 1, &out, 1);
}

static void custom_module_calls_its_children(void** state) {
  (void)state;
  parent p = {0};
  gw_module *child = NULL, *model = NULL;
  assert_ok(gw_linear_create(2, 2, 0, &child));
  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.shapes = parent_shapes;
  c.forward = parent_forward;
  c.backward_input = parent_backward;
  c.user = &p;
  c.children = &child;
  c.child_count = 1;
  const char* name = "inner";
  c.child_names = &name;
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(child);
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  gw_parameter* w = NULL;
  assert_ok(gw_module_find_parameter(model, "inner.weight", &w));
  double values[4] = {1, 2, 3, 4}, x[2] = {1, 10}, dy[2] = {1, 1};
  const int64_t w_shape[2] = {2, 2}, x_shape[2] = {1, 2};
  gw_view view, got;
  gw_view_set(&view, values, w_shape, 2, GW_F64);
  assert_ok(gw_parameter_assign(w, &view, NULL));
  gw_parameter_release(w);
  gw_frame* frame = NULL;
  assert_ok(gw_frame_create(model, NULL, &frame));
  gw_tensor* out = NULL;
  size_t count = 0;
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, &out, 1, &count));
  assert_ok(gw_tensor_view(out, &got));
  assert_true(((double*)got.data)[0] == 21 && ((double*)got.data)[1] == 43);
  gw_tensor_release(out);
  assert_int_equal(p.wrong_child, GW_E_INVALID_ARGUMENT);
  assert_int_equal(p.backward_in_forward, GW_E_INVALID_ARGUMENT);
  gw_view_set(&view, dy, x_shape, 2, GW_F64);
  assert_ok(gw_module_backward(model, &view, 1, frame, NULL, &out, 1, &count));
  assert_ok(gw_tensor_view(out, &got));
  assert_true(((double*)got.data)[0] == 4 && ((double*)got.data)[1] == 6);
  gw_tensor_release(out);
  gw_frame_release(frame);
  gw_module_release(model);
  /* The text of the call that failed inside is told. */
  assert_ok(gw_linear_create(2, 2, 0, &child));
  c.forward = parent_fails;
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(child);
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_refused(gw_module_forward(model, &view, 1, NULL, NULL, &out, 1, &count),
                 "child is 3, the module has 1");
  gw_module_release(model);
  /* Outside of a callback. */
  gw_call call;
  memset(&call, 0, sizeof call);
  assert_refused_as(gw_call_forward(&call, 0, NULL, 0, &got, 1), GW_E_INVALID_STATE, "no module that runs");
  assert_refused_as(gw_call_backward(&call, 0, NULL, 0, &got, 1), GW_E_INVALID_STATE, "no module that runs");
  assert_refused(gw_call_forward(NULL, 0, NULL, 0, &got, 1), "call is null");
  assert_refused(gw_call_backward(NULL, 0, NULL, 0, &got, 1), "call is null");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(linear_gives_known_values_and_gradients),
                                     cmocka_unit_test(layers_have_the_documented_shapes),
                                     cmocka_unit_test(bad_layers_are_refused),
                                     cmocka_unit_test(looking_into_a_model),
                                     cmocka_unit_test(nulls_are_refused),
                                     cmocka_unit_test(a_frame_belongs_to_its_model),
                                     cmocka_unit_test(what_is_saved_is_loaded),
                                     cmocka_unit_test(custom_module_runs_and_frees_once),
                                     cmocka_unit_test(refused_custom_modules_free_once),
                                     cmocka_unit_test(custom_module_calls_its_children)};
  return cmocka_run_group_tests_name("capi_module", tests, NULL, NULL);
}
