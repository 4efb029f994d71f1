#include "models.h"

#include <math.h>

/* {x W^T, b}: the gradient of the second output is that of the bias. */
static void a_linear_that_skips_the_addition_hands_out_its_bias(void** state) {
  (void)state;
  gw_module *model = NULL, *refused = NULL;
  assert_refused(gw_linear_create(2, 3, 3, &refused), "bias is 3");
  assert_refused(gw_linear_create(2, 3, -1, &refused), "bias is -1");
  assert_ok(gw_linear_create(2, 3, 2, &model));
  assert_ok(gw_module_materialize(model, NULL, 7, GW_F64));
  double w[6] = {1, 2, 3, 4, 5, 6}, b[3] = {10, 20, 30}, x[2] = {1, -1}, dy[3] = {1, 0, 2}, db[3] = {5, 6, 7},
         none[3] = {0};
  const int64_t w_shape[2] = {3, 2}, three[1] = {3}, x_shape[2] = {1, 2}, y_shape[2] = {1, 3};
  gw_view view, got, gradients[2];
  gw_parameter *weight = NULL, *bias = NULL;
  assert_ok(gw_module_find_parameter(model, "weight", &weight));
  assert_ok(gw_module_find_parameter(model, "bias", &bias));
  gw_view_set(&view, w, w_shape, 2, GW_F64);
  assert_ok(gw_parameter_assign(weight, &view, NULL));
  gw_view_set(&view, b, three, 1, GW_F64);
  assert_ok(gw_parameter_assign(bias, &view, NULL));
  gw_frame* frame = NULL;
  assert_ok(gw_frame_create(model, NULL, &frame));
  gw_tensor *out[2], *sum = NULL;
  size_t count = 0;
  for (int with_bias = 1; with_bias >= 0; --with_bias) {
    gw_view_set(&view, x, x_shape, 2, GW_F64);
    assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 2, &count));
    assert_int_equal(count, 2);
    const double y[3] = {-1, -1, -1};
    assert_ok(gw_tensor_view(out[0], &got));
    for (int i = 0; i < 3; ++i) assert_true(fabs(at(&got, i) - y[i]) < 1e-12);
    assert_ok(gw_tensor_view(out[1], &got));
    for (int i = 0; i < 3; ++i) assert_true(at(&got, i) == b[i]);
    gw_tensor_release(out[0]);
    gw_tensor_release(out[1]);
    gw_view_set(&gradients[0], dy, y_shape, 2, GW_F64);
    gw_view_set(&gradients[1], with_bias ? db : none, three, 1, GW_F64);
    assert_ok(gw_module_backward(model, gradients, 2, frame, NULL, out, 1, &count));
    assert_ok(gw_tensor_view(out[0], &got));
    assert_true(fabs(at(&got, 0) - 11) < 1e-12 && fabs(at(&got, 1) - 14) < 1e-12); /* dy W */
    gw_tensor_release(out[0]);
    assert_ok(gw_frame_reset(frame));
    assert_ok(gw_parameter_gather_gradient(bias, NULL, &sum));
    assert_ok(gw_tensor_view(sum, &got));
    for (int i = 0; i < 3; ++i) assert_true(at(&got, i) == db[i]);
    gw_tensor_release(sum);
  }
  gw_parameter_release(weight);
  gw_parameter_release(bias);
  gw_frame_release(frame);
  gw_module_release(model);
}

/* y = x W^T + b, with W and b that the test sets. */
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
  for (int i = 0; i < 6; ++i) assert_true(fabs(at(&got, i) - y[i]) < 1e-12);
  gw_tensor_release(out[0]);
  gw_view_set(&view, dy, y_shape, 2, GW_F64);
  assert_ok(gw_module_backward(model, &view, 1, frame, NULL, out, 2, &count));
  assert_int_equal(count, 1);
  assert_ok(gw_tensor_view(out[0], &got));
  const double dx[4] = {1, 2, 8, 10}; /* dy W */
  for (int i = 0; i < 4; ++i) assert_true(fabs(at(&got, i) - dx[i]) < 1e-12);
  gw_tensor_release(out[0]);
  gw_tensor* gradient = NULL;
  assert_ok(gw_parameter_gather_gradient(weight, NULL, &gradient));
  assert_ok(gw_tensor_view(gradient, &got));
  const double dw[6] = {1, 1, 2, -1, 2, -1}; /* dy^T x */
  for (int i = 0; i < 6; ++i) assert_true(fabs(at(&got, i) - dw[i]) < 1e-12);
  gw_tensor_release(gradient);
  /* An evaluation has no frame. The frame can be used again. */
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_ok(gw_module_forward(model, &view, 1, NULL, NULL, out, 1, &count));
  gw_tensor_release(out[0]);
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 1, &count));
  gw_tensor_release(out[0]);
  assert_ok(gw_frame_reset(frame));
  assert_ok(gw_module_set_no_sync(model, 1));
  assert_ok(gw_module_set_no_sync(model, 0));
  /* An array that is too small, and null handles. The refusal has the number of results. */
  out[0] = (gw_tensor*)w;
  assert_refused(gw_module_forward(model, &view, 1, NULL, NULL, NULL, 0, &count),
                 "1 results, out_capacity is 0");
  assert_int_equal(count, 0);
  /* The parameters, frames and copies of a model outlive the model's handle. */
  gw_module_release(model);
  gw_tensor* whole = NULL;
  assert_ok(gw_parameter_gather(weight, NULL, &whole));
  gw_parameter_release(weight);
  gw_parameter_release(bias);
  gw_frame_release(frame);
  assert_ok(gw_tensor_view(whole, &got));
  assert_true(at(&got, 5) == 6);
  gw_tensor_release(whole);
}

static void layers_have_the_documented_shapes(void** state) {
  (void)state;
  gw_module* m[10] = {NULL};
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
  assert_ok(gw_linear_create(8, 3, 0, &m[5]));
  assert_ok(gw_layernorm_create(8, 1e-5, &m[6]));
  assert_ok(gw_activation_create(GW_ACTIVATION_GELU, &m[7]));
  assert_ok(gw_dropout_create(0.1, &m[8]));
  gw_feed_forward_options f;
  gw_feed_forward_options_init(&f, sizeof f);
  f.dim = 8;
  f.ffn = 16;
  f.plain = f.bias = 1;
  assert_ok(gw_feed_forward_create(&f, &m[9]));
  static const size_t counts[10] = {1, 1, 4, 3, 9, 1, 2, 0, 0, 4};
  for (int i = 0; i < 10; ++i) {
    size_t count = 0;
    assert_ok(gw_module_parameter_count(m[i], &count));
    assert_int_equal(count, counts[i]);
  }
  /* A chain: an embedding, then a linear layer. */
  gw_module* const parts[2] = {m[0], m[5]};
  gw_module* sequential = NULL;
  assert_ok(gw_sequential_create(parts, 2, &sequential));
  for (int i = 0; i < 10; ++i) gw_module_release(m[i]);
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
  for (int i = 0; i < 3; ++i) assert_true(at(&got, 3 + i) == at(&got, 9 + i));
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
  gw_decoder_options l = small_llama();
  gw_attention_options a;
  assert_refused((l.heads = 3, gw_decoder_create(&l, &m)), "which heads 3 does not divide");
  l = small_llama();
  assert_refused((l.kv_heads = 3, gw_decoder_create(&l, &m)), "kv_heads 3 does not divide");
  l = small_llama();
  assert_refused((l.layers = -1, gw_decoder_create(&l, &m)), "layers is -1");
  l = small_llama();
  assert_refused((l.vocab = 0, gw_decoder_create(&l, &m)), "vocab is 0");
  assert_refused(gw_decoder_create(NULL, NULL), "out_model is null");
  assert_refused(gw_linear_create(0, 3, 0, &m), "in is 0");
  assert_refused(gw_linear_create(1, 3, 0, NULL), "out_model is null");
  assert_refused(gw_embedding_create(-4, 3, &m), "rows is -4");
  assert_refused(gw_embedding_create(4, 3, NULL), "out_model is null");
  assert_refused(gw_rmsnorm_create(0, 1e-5, &m), "dim is 0");
  assert_refused(gw_rmsnorm_create(1, 1e-5, NULL), "out_model is null");
  gw_attention_options_init(&a, sizeof a);
  assert_refused(gw_attention_create(&a, &m), "dim is 0");
  assert_refused(gw_attention_create(NULL, &m), "options is null");
  assert_refused(gw_attention_create(&a, NULL), "out_model is null");
  assert_refused(gw_mlp_create(8, 0, 0, &m), "is 0");
  assert_refused(gw_mlp_create(8, 8, 0, NULL), "out_model is null");
  assert_refused(gw_layernorm_create(0, 1e-5, &m), "dim is 0");
  assert_refused(gw_layernorm_create(1, 1e-5, NULL), "out_model is null");
  assert_refused(gw_activation_create(5, &m), "activation is 5");
  assert_refused(gw_activation_create(0, NULL), "out_model is null");
  assert_refused(gw_dropout_create(1, &m), "probability is 1");
  assert_refused(gw_dropout_create(0, NULL), "out_model is null");
  gw_feed_forward_options f;
  gw_feed_forward_options_init(&f, sizeof f);
  assert_refused(gw_feed_forward_create(&f, &m), "is 0");
  assert_refused(gw_feed_forward_create(NULL, &m), "options is null");
  assert_refused(gw_feed_forward_create(&f, NULL), "out_model is null");
  f.activation = -1;
  assert_refused(gw_feed_forward_create(&f, &m), "options.activation is -1");
  l = small_llama();
  assert_refused((l.rope_scaling = 4, gw_decoder_create(&l, &m)), "options.rope_scaling is 4");
  l = small_llama();
  assert_refused((l.rope_short_factors = "1 two", gw_decoder_create(&l, &m)), "\"1 two\"");
  l = small_llama();
  assert_refused((l.rope_partial = 0.5, gw_decoder_create(&l, &m)), "rope_partial is 0.5");
  assert_refused(gw_block_create(NULL, 8, 1e-5, &m), "attention is null");
  assert_refused(gw_block_create(&a, 8, 1e-5, NULL), "out_model is null");
  assert_refused(gw_sequential_create(NULL, 0, &m), "0 modules");
  assert_refused(gw_sequential_create(NULL, 1, &m), "models is null");
  assert_refused(gw_sequential_create(&m, 1, &m), "models[0] is null");
  assert_refused(gw_sequential_create(&m, 1, NULL), "out_model is null");
  assert_null(m);
  gw_decoder_options_init(NULL, 0);
  gw_attention_options_init(NULL, 0);
  gw_feed_forward_options_init(NULL, 0);
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
  assert_refused(gw_parameter_assign(p, NULL, NULL), "values is null");
  gw_parameter_release(p);
  gw_parameter_release(NULL);
  assert_refused(gw_module_memory(NULL, &use), "model is null");
  assert_refused(gw_module_check_replicas(NULL, NULL), "model is null");
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
  batch.tokens[2] = 99; /* not in the vocabulary */
  assert_refused(gw_module_forward(a, &batch.input, 1, NULL, NULL, &out, 1, &count),
                 "id 99 is outside the vocabulary");
  assert_ptr_equal(gw_frame_retain(frame), frame);
  assert_null(gw_frame_retain(NULL));
  gw_frame_release(frame);
  gw_frame_release(frame);
  gw_module_release(a);
  gw_module_release(b);
}

/* Local: a family by its name, and what its config.json cannot say. */
static void a_decoder_is_of_a_family(void** state) {
  (void)state;
  gw_decoder_options o;
  gw_module* model = NULL;
  gw_decoder_options_init(&o, sizeof o);
  assert_string_equal(o.family, "llama");
  const gw_decoder_options before = o;
  assert_refused_as(gw_decoder_options_from_family("gpt5", &o), GW_E_NOT_SUPPORTED, "\"gpt5\" is unknown");
  assert_memory_equal(&o, &before, sizeof o);
  assert_ok(gw_decoder_options_from_family("qwen3", &o));
  assert_string_equal(o.family, "qwen3");
  assert_int_equal(o.qk_norm, 1);
  o.dim = 16;
  o.layers = 1;
  o.heads = 2;
  assert_ok(gw_decoder_create(&o, &model));
  gw_module_release(model);
  o.qk_norm = 0;
  assert_refused(gw_decoder_create(&o, &model), "qk_norm is 0, but in the family qwen3 it is always 1");
  o.qk_norm = 1;
  o.window = o.max_positions - 1;
  assert_ok(gw_decoder_create(&o, &model));
  gw_module_release(model);
  o.family = "gpt5";
  assert_refused_as(gw_decoder_create(&o, &model), GW_E_NOT_SUPPORTED, "llama");
  o = before;
  o.family = NULL;
  assert_ok(gw_decoder_create(&o, &model));
  gw_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(linear_gives_known_values_and_gradients),
                                     test_on_device(a_linear_that_skips_the_addition_hands_out_its_bias),
                                     cmocka_unit_test(a_decoder_is_of_a_family),
                                     test_on_device(layers_have_the_documented_shapes),
                                     test_on_device(bad_layers_are_refused),
                                     test_on_device(nulls_are_refused),
                                     test_on_device(a_frame_belongs_to_its_model)};
  return cmocka_run_group_tests_name("capi_module", tests, NULL, NULL);
}
